"""Host: the body of /v1/completions."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.requests.generation_fields import SamplingFields
from jaxserve.server.openai.requests.text_inputs import Texts, as_list

DEFAULT_MAX_TOKENS = 16  # OpenAI's


class CompletionBody(SamplingFields):
    """prompt: text, token ids, or a list of either. logprobs: candidates per token. echo: the response starts with the
    prompt; with max_tokens=0 it is only the prompt."""

    misplaced: ClassVar[Mapping[str, str]] = {"messages": "send them to /v1/chat/completions"}
    prompt: Texts
    echo: bool = False
    logprobs: int | None = Field(None, ge=-1)
    add_special_tokens: bool = True

    def model_post_init(self, _: Any) -> None:
        super().model_post_init(_)
        if self.max_tokens == 0 and not self.echo:
            raise ApiError(400, "max_tokens must be at least 1, or 0 with echo=true", param="max_tokens")

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """The request's prompts as a list."""
        return as_list(self.prompt)
