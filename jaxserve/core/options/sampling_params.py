"""Host: `SamplingParams`: how tokens are drawn and when a text ends, with the names and defaults of vLLM."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

from jaxserve.core.did_you_mean import did_you_mean
from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_checks import (
    INT64,
    boolean,
    integer,
    listed,
    logit_bias,
    number,
    optional,
    strings,
    token_ids,
)
from jaxserve.core.options.structured_outputs import StructuredOutputsParams

MAX_N = 128
MAX_STOP_STRINGS = 64
MAX_BAD_WORDS = 128
GREEDY_BELOW = 1e-5  # a lower temperature is greedy
MAX_TEMPERATURE = 1e6  # all tokens are equally likely at far lower values
MIN_REPETITION_PENALTY = 1e-6  # logits divided by less overflow float32
MAX_FEW_TOKEN_IDS = 1024  # every token drawn is compared with each stop token
MIN_TEMPERATURE = 1e-2  # below it logits / temperature leave the range where a float32 softmax is useful

UNSUPPORTED = frozenset(
    "best_of extra_args flat_logprobs guided_decoding length_penalty logits_processors logprob_token_ids output_kind "
    "prompt_logprob_start prompt_logprob_token_ids repetition_detection routed_experts_prompt_start "
    "stream_interval thinking_token_budget trace_decode_token_ids "
    "truncate_prompt_tokens use_beam_search watermarking".split()
)
OTHER_NAMES = {
    "max_completion_tokens": "max_tokens",
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "n_predict": "max_tokens",
    "no_stop_trim": "include_stop_str_in_output",
    "num_return_sequences": "n",
    "repeat_penalty": "repetition_penalty",
    "sampling_seed": "seed",
    "stop_strings": "stop",
    "top_logprobs": "logprobs",
    "top_logprobs_num": "logprobs",
}


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Values are checked and normalized at construction; one that is not supported raises `RequestError`.

    After construction stop, stop_token_ids, shown_special_ids and bad_words are tuples, possibly empty;
    allowed_token_ids is a tuple or None, and logit_bias a dict or None.

    n: samples of one prompt. temperature: 0 (or below 1e-5) is greedy; top_p, top_k and min_p then have no effect, and
    one sample is computed and repeated n times.
    top_k: 0 keeps all tokens; -1 means 0. seed: None draws a seed from the engine's; -1 means None.
    presence_penalty, frequency_penalty: subtracted from the logits of generated tokens, once and once per occurrence.
    repetition_penalty: divides positive logits, and multiplies negative ones, of tokens in prompt and output.
    stop: strings that end the output, which excludes them unless include_stop_str_in_output. stop_token_ids: tokens
    that end the output, beyond the model's end-of-sequence ids, which ignore_eos disables. min_tokens: none of these
    ends the output earlier; a complete form (structured_outputs) that cannot go on does.
    max_tokens: None fills the context.
    logprobs, prompt_logprobs: number of candidates reported per position; 0: only the token itself, -1: all.
    detokenize: False leaves the text empty. skip_special_tokens: leave them out of the text.
    shown_special_ids: special tokens that are never left out, such as the markers of tool calls.
    spaces_between_special_tokens: has no effect, as text is made from the tokens' own bytes, and nothing is inserted
    between them.
    logit_bias: added to the logits of token ids, clamped to [-100, 100]. allowed_token_ids: only these are drawn.
    bad_words: none of these is generated; a text that they leave no token ends with an error.
    skip_reading_prefix_cache: compute the whole prompt, even if it is cached; None is False.
    structured_outputs: the form that the text must have: a `StructuredOutputsParams`, or a mapping of its fields.
    kv_policy, speculation: False: without the engine's KV policy, and without drafts; None: as the engine; True:
    refused where the request cannot have them.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Collection[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    shown_special_ids: Collection[int] = ()
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logit_bias: Mapping[int, float] | None = None
    allowed_token_ids: Collection[int] | None = None
    bad_words: Sequence[str] | None = None
    skip_reading_prefix_cache: bool | None = None
    structured_outputs: StructuredOutputsParams | Mapping[str, Any] | None = None
    kv_policy: bool | None = None
    speculation: bool | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> "SamplingParams":
        known = {field.name for field in fields(cls)}
        for name in kwargs.keys() - known:
            raise RequestError(_refusal(name, known), name)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        if self.is_greedy:
            for name, off in (("temperature", 0.0), ("top_p", 1.0), ("top_k", 0), ("min_p", 0.0)):
                object.__setattr__(self, name, off)
        elif self.temperature < MIN_TEMPERATURE:
            logging.getLogger(__name__).warning("temperature %g is raised to %g", self.temperature, MIN_TEMPERATURE)
            object.__setattr__(self, "temperature", MIN_TEMPERATURE)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(f"min_tokens {self.min_tokens} is above max_tokens {self.max_tokens}", "min_tokens")
        if self.stop and not self.detokenize:
            raise RequestError("stop needs the text: set detokenize=True, or use stop_token_ids", "stop")

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature < GREEDY_BELOW

    @property
    def num_sequences(self) -> int:
        """Samples that are computed: greedy ones are equal, so one is repeated."""
        return 1 if self.is_greedy else self.n

    @property
    def constraint(self) -> StructuredOutputsParams | None:
        """`structured_outputs`, as it is after construction."""
        return cast(StructuredOutputsParams | None, self.structured_outputs)

    def validate_for(self, vocab_size: int, max_logprobs: int, max_model_len: int) -> None:
        """Raise `RequestError` for ids outside the vocabulary, and log-probabilities or min_tokens above a limit.

        max_logprobs: the engine's limit for logprobs and prompt_logprobs; -1 for no limit.
        """
        for name in ("stop_token_ids", "shown_special_ids", "logit_bias", "allowed_token_ids"):
            outside = [i for i in getattr(self, name) or () if i >= vocab_size]
            if outside:
                message = f"{name} has ids outside the vocabulary of {vocab_size} tokens: {listed(outside)}"
                raise RequestError(message, name)
        if max_logprobs == -1:
            max_logprobs = vocab_size
        for name in ("logprobs", "prompt_logprobs"):
            asked = getattr(self, name)
            if asked is not None and (vocab_size if asked == -1 else asked) > max_logprobs:
                raise RequestError(f"{name} is {asked}, but the engine's max_logprobs is {max_logprobs}", name)
        if self.min_tokens >= max_model_len:
            message = f"min_tokens {self.min_tokens} does not fit the model's context of {max_model_len} tokens"
            raise RequestError(message, "min_tokens")


def _refusal(name: str, known: set[str]) -> str:
    if name in UNSUPPORTED:
        return f"{name} is known from other engines but not supported here: leave it out"
    meant = OTHER_NAMES.get(name)
    return f"unknown sampling parameter {name!r}" + did_you_mean(meant or name, known)


def _top_k(name: str, value: Any) -> int:
    return max(integer(-1)(name, value), 0)


def _seed(name: str, value: Any) -> int | None:
    seed = integer(-INT64, INT64 - 1)(name, value)
    return None if seed == -1 else seed


def _stop(name: str, value: Any) -> tuple[str, ...]:
    return strings(MAX_STOP_STRINGS)(name, [value] if isinstance(value, str) else value)


def _few_token_ids(name: str, value: Any) -> tuple[int, ...]:
    ids = () if value is None else token_ids(name, value)
    if len(ids) > MAX_FEW_TOKEN_IDS:
        raise RequestError(f"{name} holds {len(ids)} ids; at most {MAX_FEW_TOKEN_IDS} are allowed", name)
    return ids


def _allowed_token_ids(name: str, value: Any) -> tuple[int, ...]:
    allowed = token_ids(name, value)
    if not allowed:
        raise RequestError(f"{name} is empty: nothing could be generated; leave it out to allow every token", name)
    return allowed


_CHECKS = {
    "n": integer(1, MAX_N),
    "presence_penalty": number(-2.0, 2.0),
    "frequency_penalty": number(-2.0, 2.0),
    "repetition_penalty": number(MIN_REPETITION_PENALTY, 1 / MIN_REPETITION_PENALTY),
    "temperature": number(0.0, MAX_TEMPERATURE),
    "top_p": number(0.0, 1.0, above=True),
    "top_k": _top_k,
    "min_p": number(0.0, 1.0),
    "seed": optional(_seed),
    "stop": _stop,
    "stop_token_ids": _few_token_ids,
    "ignore_eos": boolean,
    "max_tokens": optional(integer(1)),
    "min_tokens": integer(0),
    "logprobs": optional(integer(-1)),
    "prompt_logprobs": optional(integer(-1)),
    "detokenize": boolean,
    "skip_special_tokens": boolean,
    "shown_special_ids": _few_token_ids,
    "spaces_between_special_tokens": boolean,
    "include_stop_str_in_output": boolean,
    "logit_bias": optional(logit_bias),
    "allowed_token_ids": optional(_allowed_token_ids),
    "bad_words": strings(MAX_BAD_WORDS),
    "skip_reading_prefix_cache": optional(boolean),
    "structured_outputs": optional(lambda _, value: StructuredOutputsParams.read(value)),
    "kv_policy": optional(boolean),
    "speculation": optional(boolean),
}
