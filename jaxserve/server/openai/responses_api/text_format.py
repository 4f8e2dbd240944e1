"""Host: `TextConfig`: the field `text` of a response's body: the form that its text must have."""

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from jaxserve.core.errors import RequestError
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from jaxserve.server.openai.requests.base_body import Body
from jaxserve.server.openai.requests.response_format import NAMED_SCHEMA, of_named_schema
from jaxserve.text.schema_check import check_schema

PATH = "text.format"
_JSON_SCHEMA = "json_schema"


def _format(kind: str, others: dict[str, Any]) -> dict[str, Any]:
    """A format of one type; others: the schema of its other fields."""
    properties = {"type": {"type": "string", "enum": [kind]}, **others.get("properties", {})}
    required = ["type", *others.get("required", ())]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


FORMATS = {
    "text": _format("text", {}),
    "json_object": _format("json_object", {}),
    _JSON_SCHEMA: _format(_JSON_SCHEMA, NAMED_SCHEMA),  # flat, where chats have an object in the object
}


class TextConfig(Body):
    """format: of the text; by default any. verbosity: models here are not trained for it, so only OpenAI's default is
    accepted."""

    format: Annotated[dict[str, Any], WithJsonSchema({"anyOf": list(FORMATS.values())})] = Field({"type": "text"})
    verbosity: str | None = Field(None, pattern="^medium$")

    def constraint(self) -> StructuredOutputsParams | None:
        """What the format asks for; None for any text. Raises `RequestError` with the path of what is invalid."""
        kind = self.format.get("type")
        if not isinstance(kind, str) or kind not in FORMATS:
            message = f"{PATH}.type must be one of {', '.join(FORMATS)}, not {kind!r}"[:200]
            raise RequestError(message, f"{PATH}.type")
        check_schema(self.format, FORMATS[kind], PATH)
        if kind == _JSON_SCHEMA:
            return of_named_schema({name: self.format[name] for name in self.format if name != "type"}, PATH)
        return StructuredOutputsParams(json_object=True) if kind == "json_object" else None
