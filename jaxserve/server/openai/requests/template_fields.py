"""Host: `Messages` and `TemplateFields`: the messages of a body, and the fields that their chat template takes."""

from typing import Annotated, Any

from pydantic import WithJsonSchema

from jaxserve.server.openai.requests.base_body import Body
from jaxserve.text.message_schema import conversation_schema

# Checked against the schema when they are rendered, in a thread, because the template may name roles and fields.
Messages = Annotated[Any, WithJsonSchema(conversation_schema())]


class TemplateFields(Body):
    """add_generation_prompt: None means unless the last message is continued."""

    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
