"""Host: `grammar_text`: a request's constraint as the grammar that llguidance compiles."""

import json
import string
from typing import Any

from jaxserve.constrained.json_schema_rules import SchemaError, check_schema, forbid_additional_properties
from jaxserve.constrained.lark_grammars import lark_from, quoted
from jaxserve.constrained.structural_tags import tagged_text
from jaxserve.core.options.structured_outputs import StructuredOutputsParams

FORM = "form"  # the name of a grammar that another one refers to
MAX_SPACES = 8  # between reasoning and form: models write one or two line breaks, and might write spaces without end
PLAIN = frozenset(string.ascii_letters + string.digits)  # stand for themselves in a regular expression


def grammar_text(params: StructuredOutputsParams) -> str:
    """A list of grammars in llguidance's JSON. Raises `SchemaError` with the reason where there is none."""
    form, end = _form(params), params.reasoning_end
    return form if end is None else _after_reasoning(form, end, params.reasoning_start)


def _form(params: StructuredOutputsParams) -> str:
    """The same without reasoning."""
    if params.kind in ("json", "json_object"):
        return json_grammar(read_schema(params), json_options(params))
    if params.kind == "regex":
        return _regex(str(params.regex))
    if params.kind == "choice":
        assert params.choice is not None
        return _regex("|".join(_literal(text) for text in params.choice))
    if params.kind == "grammar":
        return _lark(lark_from(str(params.grammar)))
    return _lark(tagged_text(json.loads(str(params.structural_tag)), json_options(params)))


def read_schema(params: StructuredOutputsParams) -> dict[str, Any]:
    """The schema that JSON must follow, checked."""
    schema = {"type": "object"} if params.json_object else json.loads(str(params.json))
    if isinstance(schema, bool):
        if not schema:
            raise SchemaError("the schema false describes no value")
        schema = {}
    check_schema(schema)
    if params.disable_additional_properties:
        forbid_additional_properties(schema)
    return schema


def json_options(params: StructuredOutputsParams) -> dict[str, Any]:
    """llguidance's options of whitespace. By default one space may follow a comma or a colon: models expect one there,
    and with any more they may write spaces without end."""
    if params.whitespace_pattern is not None:
        return {"whitespace_flexible": False, "whitespace_pattern": params.whitespace_pattern}
    space = "" if params.disable_any_whitespace else " ?"
    return {"whitespace_flexible": False, "item_separator": "," + space, "key_separator": ":" + space}


def json_grammar(schema: dict[str, Any], options: dict[str, Any]) -> str:
    """The grammar of a schema, with options of llguidance."""
    return json.dumps({"grammars": [{"json_schema": {**schema, "x-guidance": options}}]})


def _after_reasoning(form: str, end: str, start: str | None) -> str:
    """The grammars of a form, after text of any kind up to its end; after nothing, too, where that text has a start."""
    (own,) = json.loads(form)["grammars"]
    reasoning = f"reasoning /\\s{{0,{MAX_SPACES}}}/"
    rules = [f"reasoning[lazy]: TEXT {quoted(end)}", "TEXT: /(?s:.*)/"]
    if start is None:
        rules.append(f"start: {reasoning} @{FORM}")
    else:  # lazy: else the first part of the form, where that may begin in the same way, would take what follows
        rules += [f"start: ( opened {reasoning} )? @{FORM}", f"opened[lazy]: {quoted(start)}"]
    return json.dumps({"grammars": [{"lark_grammar": "\n".join(rules) + "\n"}, {**own, "name": FORM}]})


def _lark(text: str) -> str:
    return json.dumps({"grammars": [{"lark_grammar": text}]})


def _regex(pattern: str) -> str:
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_regex(pattern)


def _literal(text: str) -> str:
    """An expression that matches the text alone. Characters of ASCII that may have a meaning are given by number."""
    return "".join(c if c in PLAIN or ord(c) > 127 else f"\\x{ord(c):02x}" for c in text)
