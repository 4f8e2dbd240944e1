"""Host: `compile_grammar`: a constraint to a matcher of llguidance, in a process that may be killed; where it fails.

Runs in grammar processes only: llguidance has limits of its own, but none of time and memory.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from time import monotonic
from typing import Any, cast

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from jaxserve.constrained.grammar_text import grammar_text, json_grammar, json_options, read_schema
from jaxserve.constrained.json_schema_rules import SchemaError, parts
from jaxserve.core.options.structured_outputs import StructuredOutputsParams

# llguidance's defaults, with which its schemas compile, named so that they cannot change. With them masks of hostile
# expressions took up to 36 ms; a lexer has at most about 500 MB by llguidance's figures (1 to 2 kB for a state).
LIMITS = LLParserLimits(
    max_items_in_row=2000,
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=50_000,
    max_lexer_states=250_000,
    max_grammar_size=500_000,
    precompute_large_lexemes=True,
    verbose_errors=False,
)
SEARCH_S = 1.0  # how long the part of a schema is looked for that cannot be honoured
MAX_REASON_CHARS, MAX_LINE_CHARS = 800, 160
DEAD_END = "no text of this form exists from here on"
# What follows a reason: llguidance's state, and advice to use options that requests do not have.
ENDS = ("<backtrace>", "<non-verbose/>", "<state>", "Enable 'coerce_one_of'", "; either increase limits.")


def compile_grammar(tokenizer: LLTokenizer, params: StructuredOutputsParams) -> LLMatcher:
    """A matcher at the begin of its text, of which the first mask is computed. Raises `SchemaError` with the reason.

    A form after reasoning is compiled by itself, too: the first mask of the whole says nothing of it.
    """
    if params.reasoning_end is not None:
        compile_grammar(tokenizer, replace(params, reasoning_end=None, reasoning_start=None))
    try:
        matcher = _matcher(tokenizer, grammar_text(params))
        error = first_error(matcher)
    except RecursionError:
        raise SchemaError("it is nested too deeply") from None
    if error is None:
        return matcher
    path = "#"
    if params.kind == "json":
        path = _failing_part(tokenizer, read_schema(params), json_options(params), error)
    raise SchemaError(error, path)


def first_error(matcher: LLMatcher) -> str | None:
    """Why nothing can be drawn with a new matcher, if so."""
    if not matcher.is_error():
        matcher.compute_bitmask()
    return error_of(matcher)


def error_of(matcher: LLMatcher) -> str | None:
    """Why a matcher has failed, without the state that llguidance adds; None if it has not."""
    if not matcher.is_error():
        return None
    text = matcher.get_error()
    for end in ENDS:
        text = text.partition(end)[0]
    text = "\n".join(_shortened(line) for line in text.strip().splitlines())
    return DEAD_END if text.startswith("NoExtension") else _shortened(text, MAX_REASON_CHARS)


def _shortened(text: str, max_chars: int = MAX_LINE_CHARS) -> str:
    """Without its middle: errors stand at the end of what they quote."""
    return text if len(text) <= max_chars else f"{text[: max_chars // 2]} … {text[-max_chars // 2 :]}"


def _matcher(tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    return LLMatcher(tokenizer, grammar, log_level=0, limits=LIMITS)


def _failing_part(tokenizer: LLTokenizer, schema: Any, options: dict[str, Any], error: str) -> str:
    """The path of the innermost part of a schema that fails in the same way by itself."""
    end_s = monotonic() + SEARCH_S
    definitions = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    path, inner = "#", parts(schema)
    while (step := next(inner, None)) is not None:
        if monotonic() > end_s:
            break
        if isinstance(step[1], Mapping):
            part = cast(dict[str, Any], step[1])
            grammar = json_grammar({**definitions, **part}, options)
            if first_error(_matcher(tokenizer, grammar)) == error:
                path, inner = step[0], parts(part, step[0])
    return path


def read_params(key: str) -> StructuredOutputsParams:
    """The constraint of which this is `StructuredOutputsParams.key`."""
    return StructuredOutputsParams(**json.loads(key))
