"""Host: `TextConfig`: the field `text` of a response's body: the form that its text must have."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from jaxserve.server.openai.requests.base_body import Body
from jaxserve.text.schema_check import check_schema

PATH = "text.format"
KINDS = ("text",)
FORMAT: Mapping[str, Any] = {
    "type": "object",
    "properties": {"type": {"type": "string", "enum": ["text"]}},
    "required": ["type"],
    "additionalProperties": False,
}


class TextConfig(Body):
    """format: of the text; the default is any text. verbosity: models are not trained to have one, so only OpenAI's
    default is accepted."""

    format: Annotated[dict[str, Any], WithJsonSchema(dict(FORMAT))] = Field({"type": "text"})
    verbosity: str | None = Field(None, pattern="^medium$")


def constraint_of_text(config: TextConfig | None) -> StructuredOutputsParams | None:
    """What the format demands, None for any text. Raises `RequestError` with the path of what is invalid."""
    if config is None:
        return None
    check_schema(config.format, FORMAT, PATH)
    return None
