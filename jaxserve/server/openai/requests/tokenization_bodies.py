"""Host: the bodies of /tokenize and /detokenize."""

from typing import Annotated, Any

from pydantic import Field

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.requests.base_body import Body, Items
from jaxserve.server.openai.requests.template_fields import Messages, TemplateFields

FOR_MESSAGES = tuple(TemplateFields.model_fields)


class TokenizeBody(TemplateFields):
    """A prompt, or messages for the chat template.

    add_special_tokens: None means for a prompt; the template writes the special tokens of messages itself.
    """

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool = False

    def model_post_init(self, _: Any) -> None:
        if (self.prompt is None) == (self.messages is None):
            raise ApiError(400, "send either prompt or messages", param="prompt")
        if self.messages is None:
            for name in FOR_MESSAGES:
                if name in self.model_fields_set:
                    raise ApiError(400, f"{name} goes only with messages", param=name)

    @property
    def adds_special_tokens(self) -> bool:
        """Whether the tokenizer adds its own special tokens."""
        return self.messages is None if self.add_special_tokens is None else self.add_special_tokens


class DetokenizeBody(Body):
    """tokens: ids in the model's vocabulary."""

    model: str | None = None
    tokens: Items[Annotated[int, Field(ge=0)]]
