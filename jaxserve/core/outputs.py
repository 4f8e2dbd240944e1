"""Host: results of requests, with vLLM's names, so that scripts written for vLLM can read them.

Fields of type None belong to features that jaxserve does not have; they are always None.
"""

from dataclasses import dataclass, field

from jaxserve.core.options.lora_request import LoRARequest


@dataclass(slots=True)
class Logprob:
    """One candidate at one position.

    logprob: natural logarithm of its probability. rank: 1 for the most probable token, None if not asked for.
    decoded_token: its text; U+FFFD replaces the bytes of an incomplete character.
    """

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass(slots=True)
class CompletionOutput:
    """One of a request's n samples.

    token_ids: include the token that ended the text (an end-of-sequence id, a stop id, or the token that completed a
    stop string). logprobs: a dict per token with the top k and the sampled token, so k or k + 1 entries.
    finish_reason: "stop", "length", "abort", "timeout" (`queue_timeout_s` or `deadline_s` has passed) or "error"; None
    while running. stop_reason: the stop string or stop token id that ended the text, None for an end-of-sequence id.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    lora_request: LoRARequest | None = None
    routed_experts: None = None


@dataclass(slots=True)
class RequestMetrics:
    """Times of a request in seconds on the engine's monotonic clock; None until they are reached.

    started_s: its first sample left the queue. first_token_s: of any sample. finish_s: of the last sample.
    """

    arrival_s: float
    started_s: float | None = None
    first_token_s: float | None = None
    finish_s: float | None = None


@dataclass(slots=True)
class RequestOutput:
    """A request and its samples. prompt_logprobs: a dict per prompt token, None for the first, which has no context."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    outputs: list[CompletionOutput] = field(default_factory=list[CompletionOutput])
    finished: bool = False
    num_cached_tokens: int = 0
    metrics: RequestMetrics | None = None
    prompt_token_id_logprobs: None = None
    num_cache_creation_tokens: None = None
    lora_request: LoRARequest | None = None
    encoder_prompt: None = None
    encoder_prompt_token_ids: None = None
    kv_transfer_params: None = None


@dataclass(slots=True)
class BeamSearchSequence:
    """One of the texts found by a beam search.

    tokens: of the prompt and the text, without the end-of-sequence token unless that was asked for. logprobs: the
    candidates at each token of the text, the end-of-sequence token included. cum_logprob: sum over the tokens of the
    text. score: cum_logprob with the length penalty. text: of `tokens`, the prompt included. finish_reason: "stop" by
    an end-of-sequence token, "length", or "error" if logits were not finite or the adapter could not be read; the text
    then ends before that and has no score. stop_reason: why the adapter could not be read.
    """

    tokens: list[int]
    logprobs: list[dict[int, Logprob]]
    cum_logprob: float
    score: float | None
    text: str | None
    finish_reason: str
    stop_reason: str | None = None
    lora_request: LoRARequest | None = None


@dataclass(slots=True)
class BeamSearchOutput:
    """The texts that a beam search found for one prompt, the best first."""

    sequences: list[BeamSearchSequence]


@dataclass(slots=True)
class ScoreOutput:
    """Log-probability of a continuation after its context: natural logarithms, from the model's raw logits.

    token_ids: of the continuation. logprob: the sum of token_logprobs. is_greedy: each token is the likeliest one after
    those before it. num_context_tokens: including the beginning-of-sequence token, if one was added. text: of the
    continuation, if it was given as text.
    """

    token_ids: list[int]
    token_logprobs: list[float]
    logprob: float
    is_greedy: bool
    num_context_tokens: int
    text: str | None = None


@dataclass(slots=True)
class EmbeddingOutput:
    """embedding: one number per model dimension."""

    embedding: list[float]


@dataclass(slots=True)
class EmbeddingRequestOutput:
    """A prompt and its embedding. metrics: its arrival, and when it left the queue."""

    request_id: str
    outputs: EmbeddingOutput
    prompt_token_ids: list[int]
    finished: bool = True
    num_cached_tokens: int = 0
    metrics: RequestMetrics | None = None
