"""Host: schemas of generated text: the responses and chunks of /v1/completions and /v1/chat/completions."""

from typing import Literal

from jaxserve.server.openai.schemas.base import Answer, Usage

FinishReason = Literal["stop", "length"]
ChatFinishReason = Literal["stop", "length", "tool_calls"]


class PromptLogprob(Answer):
    """rank: 1 for the likeliest token."""

    logprob: float
    rank: int | None
    decoded_token: str | None


PromptLogprobs = list[dict[str, PromptLogprob] | None] | None  # by token id; null for the first token


class Choice(Answer):
    """stop_reason: the stop string or token id that ended the text; "timeout" where a deadline cut it."""

    index: int
    stop_reason: int | str | None
    token_ids: list[int] | None = None


class ChunkChoice(Answer):
    """finish_reason, of each kind of chunk: null before the end. stop_reason: as in a whole response."""

    index: int
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None


class Generated(Answer):
    """created: seconds since the Unix epoch."""

    id: str
    created: int
    model: str
    system_fingerprint: str


class CompletionLogprobs(Answer):
    """One entry per token; log-probabilities are null for the first token of an echoed prompt."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(Choice):
    finish_reason: FinishReason
    text: str
    logprobs: CompletionLogprobs | None
    prompt_logprobs: PromptLogprobs
    prompt_token_ids: list[int] | None = None


class CompletionResponse(Generated):
    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: Usage
    prompt_token_ids: list[int] | None = None


class CompletionChunkChoice(ChunkChoice):
    finish_reason: FinishReason | None
    text: str
    logprobs: CompletionLogprobs | None
    prompt_token_ids: list[int] | None = None


class CompletionChunk(Generated):
    """usage: absent unless it was requested."""

    object: Literal["text_completion"]
    choices: list[CompletionChunkChoice]
    usage: Usage | None = None


class TokenLogprob(Answer):
    """bytes: of the token, which may be a part of a character."""

    token: str
    logprob: float
    bytes: list[int]


class ContentLogprob(TokenLogprob):
    top_logprobs: list[TokenLogprob]


class ChatLogprobs(Answer):
    content: list[ContentLogprob]
    refusal: None


class CalledFunction(Answer):
    """arguments: a JSON object as text; models may write other text."""

    name: str
    arguments: str


class ToolCall(Answer):
    """id: that of the message with the tool's result."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class ChatMessage(Answer):
    """content: null where the message has only reasoning or tool calls."""

    role: str
    content: str | None
    refusal: None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None


class ChatChoice(Choice):
    finish_reason: ChatFinishReason
    message: ChatMessage
    logprobs: ChatLogprobs | None


class ChatResponse(Generated):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: PromptLogprobs
    prompt_token_ids: list[int] | None = None


class FunctionDelta(Answer):
    """name: in the first chunk of a call. arguments: further text of them."""

    name: str | None = None
    arguments: str


class ToolCallDelta(Answer):
    """index: of the call in the message. id, type: in the first chunk of a call."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionDelta


class ChatDelta(Answer):
    """role: in the first chunk of a choice. Nothing at all: in the last one, after tool calls."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class ChatChunkChoice(ChunkChoice):
    finish_reason: ChatFinishReason | None
    delta: ChatDelta
    logprobs: ChatLogprobs | None


class ChatChunk(Generated):
    """usage: absent unless it was requested."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    usage: Usage | None = None
    prompt_token_ids: list[int] | None = None
