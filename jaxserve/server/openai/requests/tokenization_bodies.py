"""Host: the bodies of /tokenize and /detokenize."""

from typing import Annotated, Any

from pydantic import Field

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.requests.base_body import Body, Items
from jaxserve.server.openai.requests.template_fields import TemplateFields
from jaxserve.text.chat_messages import MAX_MESSAGES

FOR_MESSAGES = tuple(TemplateFields.model_fields)


class TokenizeBody(TemplateFields):
    """A prompt, or messages for the chat template, which writes all special tokens itself."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[Items[dict[str, Any]], Field(min_length=1, max_length=MAX_MESSAGES)] | None = None
    add_special_tokens: bool = True
    return_token_strs: bool = False

    def model_post_init(self, _: Any) -> None:
        if (self.prompt is None) == (self.messages is None):
            raise ApiError(400, "send either prompt or messages", param="prompt")
        if self.messages is None:
            for name in FOR_MESSAGES:
                if name in self.model_fields_set:
                    raise ApiError(400, f"{name} goes only with messages", param=name)
        elif self.add_special_tokens and "add_special_tokens" in self.model_fields_set:
            message = (
                "add_special_tokens goes only with prompt: the chat template writes the special tokens of messages"
            )
            raise ApiError(400, message, param="add_special_tokens")


class DetokenizeBody(Body):
    """tokens: ids in the model's vocabulary."""

    model: str | None = None
    tokens: Items[Annotated[int, Field(ge=0)]]
