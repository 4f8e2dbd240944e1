"""Host: `constraint_of`: the form of the output that a body asks for, by OpenAI's `response_format` or vLLM's
`structured_outputs`."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from jaxserve.core.errors import RequestError
from jaxserve.core.options.structured_outputs import MAX_CHOICES, PARAM, StructuredOutputsParams
from jaxserve.server.openai.requests.field_policy import unknown_field
from jaxserve.text.schema_check import check_schema

FORMAT = "response_format"
Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"anyOf": [{"type": "boolean"}, {"type": "null"}]}
_OBJECT: Schema = {"type": "object", "additionalProperties": True}
_SCHEMA: Schema = {"anyOf": [_OBJECT, {"type": "boolean"}]}


def _object(required: tuple[str, ...], **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _format(name: str, *required: str, **properties: Schema) -> Schema:
    return _object(("type", *required), type={"type": "string", "enum": [name]}, **properties)


# strict: OpenAI's switch between following the schema and trying to; the output follows it either way. name and
# description are OpenAI's hints to its models.
NAMED_SCHEMA = _object(
    ("name", "schema"), name=_TEXT, schema=_SCHEMA, strict=_FLAG, description={"anyOf": [_TEXT, {"type": "null"}]}
)
FORMATS: Mapping[str, Schema] = {
    "text": _format("text"),
    "json_object": _format("json_object", schema={"anyOf": [_OBJECT, {"type": "null"}]}),  # as llama.cpp's clients ask
    "json_schema": _format("json_schema", "json_schema", json_schema=NAMED_SCHEMA),
    "structural_tag": _format(
        "structural_tag",
        "structures",
        "triggers",
        structures={"type": "array", "items": _OBJECT},
        triggers={"type": "array", "items": _TEXT},
    ),
}
# For the description alone: `StructuredOutputsParams` checks the values.
STRUCTURED_OUTPUTS: Schema = {"title": "StructuredOutputs"} | _object(
    (),
    json={"anyOf": [_OBJECT, _TEXT, {"type": "boolean"}]},
    regex=_TEXT,
    choice={"type": "array", "items": _TEXT, "minItems": 1, "maxItems": MAX_CHOICES},
    grammar=_TEXT,
    json_object={"type": "boolean"},
    structural_tag={"anyOf": [_OBJECT, _TEXT]},
    disable_any_whitespace={"type": "boolean"},
    disable_additional_properties={"type": "boolean"},
    whitespace_pattern=_TEXT,
    reasoning_end=_TEXT,
    reasoning_start=_TEXT,
)


def constraint_of(
    structured_outputs: Mapping[str, Any] | None, formatted: StructuredOutputsParams | None, format_field: str
) -> StructuredOutputsParams | None:
    """What the field `structured_outputs` asks for, or else `format_field`, which must not contradict it; None for any
    text. Raises `RequestError` that names the field at fault."""
    own = None if structured_outputs is None else _read(structured_outputs)
    if own is not None and formatted is not None and own.key != formatted.key:
        raise RequestError(f"{format_field} and {PARAM} differ: send one", format_field)
    return own or formatted


def of_response_format(value: Mapping[str, Any]) -> StructuredOutputsParams | None:
    """OpenAI's format, or vLLM's with a structural tag; None for "text"."""
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in FORMATS:
        raise RequestError(f"{FORMAT}.type must be one of {', '.join(FORMATS)}, not {kind!r}"[:200], f"{FORMAT}.type")
    check_schema(value, FORMATS[kind], FORMAT)
    if kind == "json_object":
        schema = value.get("schema")
        with errors_name(f"{FORMAT}.schema"):
            return StructuredOutputsParams(json_object=True) if schema is None else StructuredOutputsParams(json=schema)
    if kind == "json_schema":
        return of_named_schema(value["json_schema"], f"{FORMAT}.json_schema")
    if kind == "structural_tag":
        with errors_name(FORMAT):
            return StructuredOutputsParams(structural_tag={name: value[name] for name in ("structures", "triggers")})
    return None


def of_named_schema(value: Mapping[str, Any], path: str) -> StructuredOutputsParams:
    """OpenAI's schema with a name. path: of the field that holds it, for errors."""
    check_schema(value, NAMED_SCHEMA, path)
    with errors_name(f"{path}.schema"):
        return StructuredOutputsParams(json=value["schema"])


@contextmanager
def errors_name(field: str) -> Generator[None]:
    """Errors about `structured_outputs` and its parts name the field of the body that said what they refuse."""
    try:
        yield
    except RequestError as error:
        if error.param is None or error.param.partition(".")[0] != PARAM:
            raise
        error.args, error.param = (str(error).replace(PARAM, field, 1),), field
        raise


def _read(value: Mapping[str, Any]) -> StructuredOutputsParams:
    """Nulls count as absent, as in the whole body: vLLM's clients send all fields."""
    known = STRUCTURED_OUTPUTS["properties"]
    for name in value:
        if name not in known:
            raise unknown_field(name, known, f"{PARAM}.")
    given = {name: each for name, each in value.items() if each is not None}
    return StructuredOutputsParams.read(cast(Any, given))
