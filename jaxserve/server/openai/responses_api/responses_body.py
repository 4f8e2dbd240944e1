"""Host: `ResponsesBody`: the body of /v1/responses."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr, WithJsonSchema

from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.structured_outputs import StructuredOutputsParams
from jaxserve.server.http.error_responses import ApiError, as_api_error
from jaxserve.server.openai.requests.base_body import Body, Items
from jaxserve.server.openai.requests.generation_fields import MAX_ID_CHARS, GenerationFields
from jaxserve.server.openai.requests.template_fields import Effort
from jaxserve.server.openai.responses_api.function_tools import (
    RESPONSE_CHOICE,
    RESPONSE_TOOLS,
    check_tools,
    shown_tools,
)
from jaxserve.server.openai.responses_api.input_item_schema import input_schema
from jaxserve.server.openai.responses_api.input_items import Item, checked_items
from jaxserve.server.openai.responses_api.text_format import PATH, TextConfig
from jaxserve.server.openai.responses_api.unbuilt_fields import INSTEAD, NEUTRAL
from jaxserve.text.tool_calls.tool_use import forces_calls

LOGPROBS = "message.output_text.logprobs"
MAX_METADATA, MAX_KEY_CHARS, MAX_VALUE_CHARS = 16, 64, 512  # OpenAI's limits
METADATA = {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": MAX_METADATA}


class ResponseStreamOptions(Body):
    """include_obfuscation: OpenAI's padding against traffic analysis; only false is accepted."""

    include_obfuscation: bool = False

    def model_post_init(self, _: Any) -> None:
        if self.include_obfuscation:
            message = "stream_options.include_obfuscation is not supported: leave it out"
            raise ApiError(400, message, param="stream_options.include_obfuscation")


class ReasoningOptions(Body):
    """effort: for templates that read it. summary: the response has the reasoning itself, so "auto" means none; its
    older name is generate_summary."""

    effort: Effort | None = None
    summary: Literal["auto"] | None = None
    generate_summary: Literal["auto"] | None = None


class ResponsesBody(GenerationFields):
    """input: a text, or items; checked against `ITEMS`. include: of log-probabilities, with `top_logprobs` candidates
    per token. max_output_tokens: by default the output may fill the context. store: keep the response on the server,
    where that is enabled; unlike OpenAI's, this one keeps nothing by default. truncation: "auto" leaves out the oldest
    turns where the conversation is too long. tools: functions. chat_template_kwargs: variables of the template.

    metadata, user, safety_identifier, prompt_cache_key: stand in the response again, and have no other effect.
    """

    prompt_field: ClassVar[str] = "input"
    misplaced: ClassVar[Mapping[str, str]] = INSTEAD
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = NEUTRAL
    format_field: ClassVar[str] = PATH
    input: Annotated[Any, WithJsonSchema(input_schema())]
    instructions: str | None = None
    previous_response_id: str | None = Field(None, min_length=1, max_length=MAX_ID_CHARS + 5)
    store: bool = False
    max_output_tokens: int | None = Field(None, ge=1)
    text: TextConfig | None = None
    tools: Annotated[Any, WithJsonSchema(RESPONSE_TOOLS)] = None
    tool_choice: Annotated[Any, WithJsonSchema(RESPONSE_CHOICE)] = None
    parallel_tool_calls: bool = True
    reasoning: ReasoningOptions | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    include: Items[str] | None = None
    top_logprobs: int | None = Field(None, ge=0)
    truncation: str = Field("disabled", pattern="^(auto|disabled)$")
    stream_options: ResponseStreamOptions | None = None
    metadata: Annotated[dict[str, Any], WithJsonSchema(METADATA)] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    _items: list[Item] = PrivateAttr()

    def model_post_init(self, _: Any) -> None:
        try:
            self._items = checked_items(self.input)
            check_tools(self.tools, self.tool_choice)
        except RequestError as error:  # a ValueError, of which pydantic would make one of its own
            raise as_api_error(error) from None
        for i, name in enumerate(self.include or ()):
            if name != LOGPROBS:
                message = f"include[{i}]={name[:200]!r} is not supported: only {LOGPROBS} is"
                raise ApiError(400, message, param=f"include[{i}]", code="unsupported_field")
        if self.top_logprobs and not self.has_logprobs:
            raise ApiError(400, f'top_logprobs needs include=["{LOGPROBS}"]', param="top_logprobs")
        _check_metadata(self.metadata or {})

    @property
    def items(self) -> list[Item]:
        """The input, checked."""
        return self._items

    @property
    def has_logprobs(self) -> bool:
        """Whether the text's tokens come with their log-probabilities."""
        return LOGPROBS in (self.include or ())

    @property
    def constraint_field(self) -> str:
        return "tools" if forces_calls(self.tools, self.tool_choice) else super().constraint_field

    @property
    def has_format(self) -> bool:
        return self.text is not None

    def read_format(self) -> StructuredOutputsParams | None:
        return None if self.text is None else self.text.constraint()

    @property
    def own_params(self) -> dict[str, Any]:
        """Sampling parameters by fields that only this body has."""
        params: dict[str, Any] = {}
        if self.max_output_tokens is not None:
            params["max_tokens"] = self.max_output_tokens
        if self.has_logprobs:
            params["logprobs"] = self.top_logprobs or 0
        return params

    def echo(self, params: SamplingParams) -> dict[str, Any]:
        """The fields by which a response repeats what was asked for. params: with the values that were left out."""
        effort = None if self.reasoning is None else self.reasoning.effort
        return {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": None,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls,
            "previous_response_id": self.previous_response_id,
            "prompt_cache_key": self.prompt_cache_key,
            "reasoning": {"effort": effort, "summary": None},
            "safety_identifier": self.safety_identifier,
            "service_tier": "default",
            "temperature": params.temperature,
            "text": {"format": {"type": "text"} if self.text is None else self.text.format},
            "tool_choice": "auto" if self.tool_choice is None else self.tool_choice,
            "tools": shown_tools(self.tools),
            "top_logprobs": self.top_logprobs or 0,
            "top_p": params.top_p,
            "truncation": self.truncation,
            "user": self.user,
        }


def _check_metadata(metadata: dict[str, Any]) -> None:
    if len(metadata) > MAX_METADATA:
        message = f"metadata holds {len(metadata)} values; at most {MAX_METADATA} are allowed"
        raise ApiError(400, message, param="metadata")
    for name, value in metadata.items():
        if len(name) > MAX_KEY_CHARS or not isinstance(value, str) or len(value) > MAX_VALUE_CHARS:
            limits = f"names have at most {MAX_KEY_CHARS} characters, and values are texts of at most {MAX_VALUE_CHARS}"
            raise ApiError(400, f"metadata[{name[:MAX_KEY_CHARS]!r}]: {limits}", param="metadata")
