"""Host: the body of /v1/chat/completions."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, WithJsonSchema

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.requests.generation_fields import SamplingFields
from jaxserve.server.openai.requests.template_fields import Messages, TemplateFields
from jaxserve.text.chat_messages import text_of
from jaxserve.text.tool_calls.tool_schema import CHOICE_SCHEMA
from jaxserve.text.tool_calls.tool_use import forces_calls

ToolChoice = Annotated[Any, WithJsonSchema(CHOICE_SCHEMA)]


class ChatBody(TemplateFields, SamplingFields):
    """messages: checked when they are rendered. max_completion_tokens: OpenAI's newer name of max_tokens; by default
    the completion may fill the context. top_logprobs: candidates per token, with logprobs=true. echo: the response
    starts with the last message if that has the response role. tool_choice: checked with the tools. include_reasoning:
    the response has the reasoning. separate_reasoning: False leaves it in the content."""

    prompt_field: ClassVar[str] = "messages"
    misplaced: ClassVar[Mapping[str, str]] = {"prompt": "send it to /v1/completions, or as messages"}
    messages: Messages
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=-1)
    echo: bool = False
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool = True
    include_reasoning: bool = True
    separate_reasoning: bool = True

    def model_post_init(self, _: Any) -> None:
        super().model_post_init(_)
        if self.max_tokens == 0:
            raise ApiError(400, "max_tokens must be at least 1", param="max_tokens")
        if "top_logprobs" in self.model_fields_set and not self.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs=true", param="top_logprobs")
        if self.max_completion_tokens is not None and self.max_tokens not in (None, self.max_completion_tokens):
            raise ApiError(400, "max_tokens and max_completion_tokens differ: send one", param="max_completion_tokens")

    @property
    def constraint_field(self) -> str:
        return "tools" if forces_calls(self.tools, self.tool_choice) else super().constraint_field

    def last_content(self, role: str) -> str:
        """The text of the last rendered message if it has the role `role`, else empty."""
        last = self.messages[-1]
        return text_of(last.get("content")) if last["role"] == role else ""
