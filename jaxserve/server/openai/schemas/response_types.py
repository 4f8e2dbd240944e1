"""Host: the schema of a response of /v1/responses."""

from typing import Any, Literal

from jaxserve.server.openai.schemas.base import Answer
from jaxserve.server.openai.schemas.response_item_types import AnyOutputItem

ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed"]


class ResponseFailure(Answer):
    code: Literal["server_error"]
    message: str


class IncompleteDetails(Answer):
    """reason: also where a deadline or the context ended the output, for which OpenAI has no word."""

    reason: Literal["max_output_tokens"]


class InputTokensDetails(Answer):
    """cached_tokens: found in the prefix cache. cache_write_tokens: not counted, 0."""

    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(Answer):
    reasoning_tokens: int


class ResponseUsage(Answer):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseReasoning(Answer):
    effort: str | None
    summary: str | None


class ResponseText(Answer):
    """format: as the request gave it."""

    format: dict[str, Any]


class ResponseFunctionTool(Answer):
    """parameters: a JSON schema."""

    type: Literal["function"]
    name: str
    description: str | None
    parameters: dict[str, Any] | None
    strict: bool | None


class NamedFunction(Answer):
    type: Literal["function"]
    name: str


class ApiResponse(Answer):
    """created_at, completed_at: seconds since the Unix epoch. error: of a response that failed. incomplete_details: why
    the output ends early. usage: null before the end."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: ResponseStatus
    background: Literal[False]
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: None
    metadata: dict[str, str]
    model: str
    output: list[AnyOutputItem]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: ResponseReasoning
    safety_identifier: str | None
    service_tier: Literal["default"]
    temperature: float
    text: ResponseText
    tool_choice: Literal["none", "auto", "required"] | NamedFunction
    tools: list[ResponseFunctionTool]
    top_logprobs: int
    top_p: float
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None
    user: str | None
