"""Host: `Messages` and `TemplateFields`: the messages of a body, and the fields that their chat template takes."""

from typing import Annotated, Any, Literal

from pydantic import WithJsonSchema

from jaxserve.server.openai.requests.base_body import Body
from jaxserve.text.message_schema import conversation_schema
from jaxserve.text.tool_calls.tool_schema import TOOLS_SCHEMA

# Checked against the schema when they are rendered, in a thread, because the template may name roles and fields.
Messages = Annotated[Any, WithJsonSchema(conversation_schema())]
Tools = Annotated[Any, WithJsonSchema(TOOLS_SCHEMA)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class TemplateFields(Body):
    """add_generation_prompt: None means unless the last message is continued. tools: checked like messages."""

    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Tools | None = None
    reasoning_effort: Effort | None = None
