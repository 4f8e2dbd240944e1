"""Host: `InputProcessor`, prompts and parameters into checked `Request`s; nothing unchecked passes this point."""

import itertools
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field, replace

import numpy as np

from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.scheduling_options import DEFAULT_SCHEDULING, SchedulingOptions
from jaxserve.core.request import Request
from jaxserve.engine.inputs.prompt import Prompt, token_ids
from jaxserve.text.tokenizer import Tokenizer

SEED_MASK = (1 << 64) - 1
BadWords = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class InputProcessor:
    """Checks against one model; counts arrivals, from which requests without a seed get theirs.

    clock: the engine's, by which they arrive.
    """

    tokenizer: Tokenizer | None
    eos_ids: tuple[int, ...]
    vocab_size: int
    max_model_len: int
    max_logprobs: int
    max_edits: int
    seed: int
    clock: Callable[[], float] = time.monotonic
    num_arrived: int = 0
    # Threads that draw from it get different ones.
    prompt_only_numbers: Iterator[int] = field(default_factory=itertools.count)
    _spelled: tuple[SequenceOf[str], BadWords] = field(default=((), ()), init=False)  # bad words, and their spellings

    def token_ids(self, prompts: list[Prompt]) -> list[list[int]]:
        """Token ids of each prompt; all texts are encoded in one call."""
        return token_ids(prompts, self.tokenizer)

    def make(
        self,
        token_ids: list[int],
        params: SamplingParams,
        place: int = 0,
        *,
        cache_salt: str | None = None,
        scheduling: SchedulingOptions = DEFAULT_SCHEDULING,
        arrival_s: float | None = None,
    ) -> Request:
        """A request, or a RequestError that says what is wrong with it.

        It arrives as the `place`-th after those counted; requests of one call are counted once all are checked.
        arrival_s: when that was, by the clock; by default now.
        """
        arrival = self.num_arrived + place
        self.check_prompt(token_ids)
        params.validate_for(self.vocab_size, self.max_logprobs, self.max_model_len)
        if self.tokenizer is None and (params.stop or params.bad_words):
            name = "stop" if params.stop else "bad_words"
            raise RequestError(f"{name} needs a tokenizer, and this model has none", name)
        room = self.max_model_len - len(token_ids)
        max_tokens = room if params.max_tokens is None else min(params.max_tokens, room)
        if params.min_tokens > max_tokens:
            raise RequestError(
                f"min_tokens={params.min_tokens} does not fit: the prompt of {len(token_ids)} tokens leaves {room} of "
                f"the model's context of {self.max_model_len}",
                "min_tokens",
            )
        held_back = {*self.eos_ids, *(params.stop_token_ids or ())} if params.min_tokens else set()
        if params.allowed_token_ids is not None and held_back.issuperset(params.allowed_token_ids):
            raise RequestError(
                "allowed_token_ids holds only tokens that end the text, which min_tokens holds back: nothing is left",
                "allowed_token_ids",
            )
        bad_words = self._bad_words(params)
        self._check_edits(params, bad_words)
        return Request(
            request_id=str(arrival),
            prompt_token_ids=np.array(token_ids, np.int32),
            params=params,
            max_tokens=max_tokens,
            seed=self._seed(params, arrival),
            eos_ids=() if params.ignore_eos else self.eos_ids,
            bad_words=bad_words,
            cache_salt=cache_salt,
            arrival_s=self.clock() if arrival_s is None else arrival_s,
            scheduling=scheduling,
        )

    def make_prompt_only(
        self,
        token_ids: list[int],
        *,
        logprobs_start: int = 0,
        pooling: str | None = None,
        cache_salt: str | None = None,
        scheduling: SchedulingOptions = DEFAULT_SCHEDULING,
        arrival_s: float | None = None,
    ) -> Request:
        """A request that draws nothing: pooled hidden states, or log-probabilities from a prompt's position on.

        It does not count as an arrival, so the seeds of other requests do not depend on it.
        """
        self.check_prompt(token_ids, room=0)
        return Request(
            request_id=f"prompt-{next(self.prompt_only_numbers)}",
            prompt_token_ids=np.array(token_ids, np.int32),
            params=SamplingParams(temperature=0, prompt_logprobs=0 if pooling is None else None, detokenize=False),
            max_tokens=0,
            seed=0,
            cache_salt=cache_salt,
            logprobs_start=logprobs_start,
            pooling=pooling,
            arrival_s=self.clock() if arrival_s is None else arrival_s,
            scheduling=scheduling,
        )

    def check_prompt(self, token_ids: SequenceOf[int], room: int = 1) -> None:
        """Raise `RequestError` unless the ids are the model's and leave `room` tokens of its context."""
        if not token_ids:
            raise RequestError("the prompt is empty: give at least one token", "prompt")
        if len(token_ids) + room > self.max_model_len:
            needed = " and at least one must remain for the output" if room else ""
            raise RequestError(
                f"This model's maximum context length is {self.max_model_len} tokens. However, your prompt contains "
                f"{len(token_ids)} input tokens{needed}. Shorten the prompt, or raise max_model_len if the model "
                "allows more.",
                "prompt",
            )
        low, high = min(token_ids), max(token_ids)
        if low < 0 or high >= self.vocab_size:
            bad = low if low < 0 else high
            raise RequestError(
                f"token id {bad} in the prompt is outside the vocabulary [0, {self.vocab_size})", "prompt"
            )

    def count(self, num_requests: int) -> None:
        """Requests that were made have arrived."""
        self.num_arrived += num_requests

    def arrive(self, requests: SequenceOf[Request]) -> int:
        """Requests that were made in any thread have arrived now; the number of the first one, for `numbered`."""
        first = self.num_arrived
        self.count(sum(request.max_tokens > 0 for request in requests))
        return first

    def numbered(self, request: Request, arrival: int) -> Request:
        """The same as the one that arrived with this number, which its seed depends on."""
        if not request.max_tokens:  # numbered when it was made, for its seed means nothing
            return request
        return replace(request, request_id=str(arrival), seed=self._seed(request.params, arrival))

    def _seed(self, params: SamplingParams, arrival: int) -> int:
        if params.seed is not None:
            return params.seed & SEED_MASK
        return int(np.random.SeedSequence([self.seed & SEED_MASK, arrival]).generate_state(1, np.uint64)[0])

    def _bad_words(self, params: SamplingParams) -> BadWords:
        """Each bad word as it is spelled alone and after a space, where tokenizers often have another token."""
        if not params.bad_words or self.tokenizer is None:
            return ()
        words, spelled = self._spelled
        if words != params.bad_words:  # the requests of one call have the same ones
            forms = [form for word in params.bad_words for form in (word, " " + word.lstrip())]
            encoded = self.tokenizer.encode_batch(forms, add_special_tokens=False)
            spelled = tuple(dict.fromkeys(tuple(ids) for ids in encoded if ids))
            self._spelled = params.bad_words, spelled
        return spelled

    def _check_edits(self, params: SamplingParams, bad_words: BadWords) -> None:
        count = len(params.logit_bias or ()) + len(bad_words)
        if params.min_tokens:
            count += len(params.stop_token_ids or ()) + len(self.eos_ids)
        if count > self.max_edits:
            raise RequestError(
                f"logit_bias, bad_words and the tokens that min_tokens holds back make {count} changed logits; "
                f"at most {self.max_edits} are possible",
                "logit_bias",
            )
