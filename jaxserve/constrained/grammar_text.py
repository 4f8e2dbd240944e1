"""Host: `grammar_text`: a request's constraint as the grammar that llguidance compiles."""

import json
import string
from typing import Any

from jaxserve.constrained.json_schema_rules import SchemaError, check_schema, forbid_additional_properties
from jaxserve.constrained.lark_grammars import lark_from
from jaxserve.constrained.structural_tags import tagged_text
from jaxserve.core.options.structured_outputs import StructuredOutputsParams

PLAIN = frozenset(string.ascii_letters + string.digits)  # stand for themselves in a regular expression


def grammar_text(params: StructuredOutputsParams) -> str:
    """A list of grammars in llguidance's JSON. Raises `SchemaError` with the reason where there is none."""
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


def _lark(text: str) -> str:
    return json.dumps({"grammars": [{"lark_grammar": text}]})


def _regex(pattern: str) -> str:
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_regex(pattern)


def _literal(text: str) -> str:
    """An expression that matches the text alone. Characters of ASCII that may have a meaning are given by number."""
    return "".join(c if c in PLAIN or ord(c) > 127 else f"\\x{ord(c):02x}" for c in text)
