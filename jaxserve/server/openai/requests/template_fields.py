"""Host: `TemplateFields`: the fields of a body that its messages' chat template takes."""

from typing import Any

from jaxserve.server.openai.requests.base_body import Body


class TemplateFields(Body):
    """add_generation_prompt: None means unless the last message is continued."""

    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
