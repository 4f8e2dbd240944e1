"""Whether texts that a JSON schema binds are valid, by a validator that knows nothing of grammars."""

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from scripts.proofs.grammars.schema_generator import FORMATS
from scripts.proofs.grammars.schema_set import schema_set, source_of

OPTIONS = {"max_model_len": 1024, "max_num_seqs": 64, "max_num_batched_tokens": 512, "buckets": "64 512x64"}
MAX_TOKENS = 192
SHOWN_CHARS = 700  # of a schema in its prompt
SAMPLERS = {"greedy": 0.0, "temperature 1": 1.0}


def validity(model: str, sampler: str) -> list[dict[str, Any]]:
    """Counts by source of schemas. truncated: ended by the limit of tokens, so not JSON yet. invalid: ended, and not
    what the schema describes. failed: ended with an error. The row "all" comes with the names of the schemas and the
    token ids of the texts."""
    from jaxserve import LLM, SamplingParams

    llm, schemas = LLM(model, **OPTIONS), schema_set()
    forms, counts = accepted(llm, schemas), {source_of(name): Counter(schemas=0) for name in schemas}
    for name in schemas:
        counts[source_of(name)].update(schemas=1, refused=name not in forms)
    prompts = [prompt_of(schemas[name]) for name in forms]
    params = [
        SamplingParams(temperature=SAMPLERS[sampler], seed=i, max_tokens=MAX_TOKENS, structured_outputs=form)
        for i, form in enumerate(forms.values())
    ]
    texts, faults = list[list[int]](), list[str]()
    for name, output in zip(forms, llm.generate(prompts, params, use_tqdm=False), strict=True):
        (text,) = output.outputs
        found = verdict(schemas[name], text.text, text.finish_reason)
        counts[source_of(name)].update({found: 1, "tokens": len(text.token_ids)})
        texts.append(list(text.token_ids))
        if found in ("invalid", "failed"):
            faults.append(f"{name}: {text.finish_reason} {text.text[-300:]!r}")
    columns = ("schemas", "refused", "valid", "truncated", "invalid", "failed", "tokens")
    rows = [{"source": source, **{name: of[name] for name in columns}} for source, of in counts.items()]
    whole = {"source": "all", **{name: sum(row[name] for row in rows) for name in columns}}
    return [*rows, whole | {"faults": faults, "names": list(forms), "texts": texts}]


def accepted(llm, schemas: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The forms of the schemas that can be honoured, by name. fields: others of the forms."""
    from jaxserve import RequestError, StructuredOutputsParams

    found = {}
    for name, schema in schemas.items():
        form = StructuredOutputsParams(json=schema, **fields)
        try:
            llm.parts.input_processor.check_grammar(form)
        except RequestError:
            continue
        found[name] = form
    return found


def prompt_of(schema: Any) -> str:
    return f"A JSON schema:\n{json.dumps(schema)[:SHOWN_CHARS]}\n\nA short example of JSON that it describes:\n"


def verdict(schema: Any, text: str, finish_reason: str | None) -> str:
    """The column that counts a text."""
    if finish_reason == "length":
        return "truncated"
    if finish_reason != "stop":
        return "failed"
    try:
        value = json.loads(text)
    except ValueError:
        return "invalid"
    return "valid" if _validator(schema).is_valid(value) else "invalid"


def _validator(schema: Any) -> Any:
    """Formats count. The grammar of RFC 3339 has a year 0, and a second 60 in any minute; the validator's dates have
    neither, and they are checked as another leap year and as a second before."""
    from jsonschema import Draft202012Validator, FormatChecker

    checker = FormatChecker(())
    checker.checkers = dict(Draft202012Validator.FORMAT_CHECKER.checkers)
    if missing := {*FORMATS} - {*checker.checkers}:
        raise SystemExit(f"formats {missing} are not checked: install jsonschema[format]")
    for name in ("date", "date-time", "time"):
        is_date, raises = checker.checkers[name]
        checker.checkers[name] = (partial(_by_grammar, is_date), raises)
    return Draft202012Validator(schema, format_checker=checker)


def _by_grammar(is_date: Callable[[object], bool], value: object) -> bool:
    if isinstance(value, str):
        value = re.sub(r"(\d\d:\d\d):60", r"\1:59", re.sub("^0000-", "0004-", value))
    return is_date(value)
