"""Host: what a request gives back; the names are vLLM's, so that scripts written for it read these too.

Fields of type None belong to what jaxserve has not built: they are there to be read, and always None.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Logprob:
    """One candidate at one position.

    logprob: natural logarithm of its probability. rank: 1 for the most probable token, None where it was not asked.
    decoded_token: its text; U+FFFD stands for the bytes of a character that it holds only in part.
    """

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass(slots=True)
class CompletionOutput:
    """One of a request's n samples.

    token_ids end with the token that ended the text (an end-of-sequence id, a stop id, or the token that completed a
    stop string). logprobs hold a dict for each of them: the top k and the sampled token, so k or k + 1 entries.
    finish_reason: "stop", "length", "abort", "timeout" (its `queue_timeout_s` or `deadline_s` passed) or "error"; None
    while running. stop_reason: the stop string or the stop token id that was met, None for an end-of-sequence id.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    lora_request: None = None
    routed_experts: None = None


@dataclass(slots=True)
class RequestMetrics:
    """Moments of a request's life in seconds on the engine's monotonic clock; None until they have come.

    started_s: its first sample left the queue. first_token_s: of any sample. finish_s: of the last sample.
    """

    arrival_s: float
    started_s: float | None = None
    first_token_s: float | None = None
    finish_s: float | None = None


@dataclass(slots=True)
class RequestOutput:
    """A request and its samples. prompt_logprobs: a dict a prompt token, None for the first, which nothing predicts."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    outputs: list[CompletionOutput] = field(default_factory=list)
    finished: bool = False
    num_cached_tokens: int = 0
    metrics: RequestMetrics | None = None
    prompt_token_id_logprobs: None = None
    num_cache_creation_tokens: None = None
    lora_request: None = None
    encoder_prompt: None = None
    encoder_prompt_token_ids: None = None
    kv_transfer_params: None = None


@dataclass(slots=True)
class BeamSearchSequence:
    """One of the texts that a beam search found.

    tokens: the prompt's and its own, without the end-of-sequence token unless that was asked for. logprobs: the
    candidates at each of its own tokens, the end-of-sequence token among them. cum_logprob: their sum. score: that with
    the length penalty. text: that of `tokens`, the prompt included. finish_reason: "stop" by an end-of-sequence token,
    "length", or "error" where logits were not finite; then the text is as it was before, and has no score.
    """

    tokens: list[int]
    logprobs: list[dict[int, Logprob]]
    cum_logprob: float
    score: float | None
    text: str | None
    finish_reason: str
    stop_reason: None = None
    lora_request: None = None


@dataclass(slots=True)
class BeamSearchOutput:
    """What a beam search found after one prompt, the best first."""

    sequences: list[BeamSearchSequence]


@dataclass(slots=True)
class ScoreOutput:
    """How likely one continuation is after its context: natural logarithms, under the model's raw logits.

    token_ids: the continuation's. logprob: the sum of token_logprobs. is_greedy: each token was the likeliest one after
    those before it. num_context_tokens: with the token that begins a text, where one was put before it. text: the
    continuation's, where it was given as text.
    """

    token_ids: list[int]
    token_logprobs: list[float]
    logprob: float
    is_greedy: bool
    num_context_tokens: int
    text: str | None = None


@dataclass(slots=True)
class EmbeddingOutput:
    """One number a model dimension."""

    embedding: list[float]


@dataclass(slots=True)
class EmbeddingRequestOutput:
    """A prompt and its embedding. metrics: when it came, and when it left the queue."""

    request_id: str
    outputs: EmbeddingOutput
    prompt_token_ids: list[int]
    finished: bool = True
    num_cached_tokens: int = 0
    metrics: RequestMetrics | None = None
