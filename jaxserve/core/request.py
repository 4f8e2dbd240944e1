"""Host: `Request`: one tokenized prompt with its checked parameters."""

from dataclasses import dataclass

import numpy as np

from jaxserve.core.errors import RequestError
from jaxserve.core.options.lora_request import Adapter, LoRARequest
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.scheduling_options import DEFAULT_SCHEDULING, SchedulingOptions
from jaxserve.core.options.structured_outputs import StructuredOutputsParams


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt with its parameters; becomes `params.num_sequences` sequences.

    seed: the 64-bit seed of sample 0 (the user's, or derived from the engine's seed and the order of arrival).
    max_tokens: the most tokens to generate: params.max_tokens, or the rest of the context if that is None. 0: nothing
    is drawn, and the sequence ends when the results of its prompt are computed.
    eos_ids: the model's end-of-sequence tokens, which end the text unless params.ignore_eos.
    bad_words: token-id sequences that must not be generated.
    cache_salt: only requests with the same salt share cached prefixes, so that users learn no prompts of others.
    arrival_s: time of the call, in seconds on the engine's clock; the time limits of `scheduling` start there.
    queued_s: when it joined the queue, where its call had other prompts before it: priority grows with the time since.
    logprobs_start: the first prompt position whose log-probability params.prompt_logprobs asks for.
    pooling: "mean" or "last": hidden states over the prompt, or of its last token; only if max_tokens is 0.
    prompt: the prompt's text if it is known, reported with the outputs.
    has_kv_policy: the engine's KV policy applies: not all KV is kept. may_draft: in an engine with drafts.
    adapter: whose products are added to the model's; None: none.
    """

    request_id: str
    prompt_token_ids: np.ndarray  # int32[prompt_len]
    params: SamplingParams
    max_tokens: int
    seed: int
    eos_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    cache_salt: str | None = None
    arrival_s: float = 0.0
    queued_s: float | None = None
    logprobs_start: int = 0
    pooling: str | None = None
    scheduling: SchedulingOptions = DEFAULT_SCHEDULING
    prompt: str | None = None
    has_kv_policy: bool = False
    may_draft: bool = True
    adapter: Adapter | None = None

    def __post_init__(self) -> None:
        if self.pooling is not None and self.max_tokens:
            raise RequestError("pooling is of the prompt alone: max_tokens must be 0", "max_tokens")

    @property
    def cache_namespace(self) -> object:
        """Only requests with an equal one share cached prefixes: KV depends on the adapter."""
        return self.cache_salt if self.adapter is None else (self.cache_salt, self.adapter.adapter_id)

    @property
    def lora_request(self) -> LoRARequest | None:
        """The adapter as callers name it, which outputs repeat."""
        return None if self.adapter is None else self.adapter.request

    @property
    def constraint(self) -> StructuredOutputsParams | None:
        """What the generated text must be; None also where none is generated."""
        return self.params.constraint if self.max_tokens else None

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Tokens that end the text."""
        return (() if self.params.ignore_eos else self.eos_ids) + tuple(self.params.stop_token_ids or ())

    def stop_reason(self, token: int) -> int | None:
        """The stop reason if `token` ended the text: None for an end-of-sequence token, else the token."""
        return None if token in self.eos_ids and not self.params.ignore_eos else token
