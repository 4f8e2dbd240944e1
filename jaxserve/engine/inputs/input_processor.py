"""Host: `InputProcessor`: the one way from prompts and parameters to checked, numbered `Request`s."""

import itertools
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field, replace

import numpy as np

from jaxserve.core.errors import RequestError
from jaxserve.core.options.kv_policy_config import MAX_STREAM_TOKENS
from jaxserve.core.options.lora_request import Adapter, LoRARequest
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.scheduling_options import DEFAULT_SCHEDULING, SchedulingOptions
from jaxserve.core.options.structured_outputs import PARAM, StructuredOutputsParams
from jaxserve.core.request import Request
from jaxserve.engine.inputs.draft_check import check_drafts
from jaxserve.engine.inputs.per_prompt import name_of, named
from jaxserve.engine.inputs.prompt import Prompt, token_ids
from jaxserve.engine.inputs.request_adapters import Adapters
from jaxserve.scheduler.logit_edits import leaves_token, no_token_left
from jaxserve.text.tokenizer import Tokenizer, check_unicode

SEED_MASK = (1 << 64) - 1
NOTHING = np.zeros(0, np.int32)  # generated so far
BadWords = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class InputProcessor:
    """Makes requests for one engine and checks all of their fields; the scheduler checks none of them again.

    has_kv_policy, has_drafts: of the engine; a request may do without. has_late_drafts: rows with a grammar may draft,
    too. scheduling_fields: the fields of `SchedulingOptions` that the engine's scheduling policy reads; the others must
    have their defaults, time limits excepted. check_grammar: raises `RequestError` for a form of the output that cannot
    be kept to; it may block for seconds, so servers make requests with a form in a thread; None: no form is kept to.
    adapters: those that requests may name. clock: the engine's, in seconds. num_arrived: requests that were numbered so
    far; seeds of requests without one follow from `seed` and this number.

    A request is made in any thread, without a number. Requests are numbered in the order of their admission, so a
    refused request leaves no trace in the seeds of others.
    """

    tokenizer: Tokenizer | None
    eos_ids: tuple[int, ...]
    vocab_size: int
    max_model_len: int
    max_logprobs: int
    max_edits: int
    seed: int
    has_kv_policy: bool = False
    has_drafts: bool = False
    has_late_drafts: bool = False
    scheduling_fields: tuple[str, ...] = ()
    check_grammar: Callable[[StructuredOutputsParams], None] | None = None
    adapters: Adapters = field(default_factory=Adapters)
    clock: Callable[[], float] = time.monotonic
    num_arrived: int = 0
    _prefill_only_numbers: Iterator[int] = field(default_factory=itertools.count, init=False)  # thread-safe
    _spelled: tuple[SequenceOf[str], BadWords] = field(default=((), ()), init=False)  # bad words, and their spellings
    _checked: StructuredOutputsParams | None = field(default=None, init=False)  # the last one that `check_grammar` took

    def requests(
        self,
        prompts: SequenceOf[Prompt],
        params: SequenceOf[SamplingParams] | None,
        scheduling: SequenceOf[SchedulingOptions] | None = None,
        *,
        lora_requests: SequenceOf[LoRARequest | Adapter | None] | None = None,
        pooling: str | None = None,
        arrival_s: float | None = None,
        noun: str = "prompt",
    ) -> list[Request]:
        """A checked request for each prompt, not numbered yet; all texts are encoded in one call.

        params, scheduling, lora_requests: one per prompt. params None: nothing is drawn, and `pooling` says which
        hidden states are asked for. Adapters that are not registered yet are, once all else is checked, which blocks
        while their files are read. arrival_s: time of arrival on the clock, by default now. Raises `RequestError`,
        which names the prompt as `noun` and its index where there are several.
        """
        arrival_s, requests = self.clock() if arrival_s is None else arrival_s, list[Request]()
        for i, (prompt, ids) in enumerate(zip(prompts, token_ids(prompts, self.tokenizer), strict=True)):
            options = DEFAULT_SCHEDULING if scheduling is None else scheduling[i]
            with named(name_of(i, len(prompts), noun)):
                if params is None:
                    request = self.make_prefill_only(
                        ids, pooling=pooling, cache_salt=prompt.cache_salt, scheduling=options, arrival_s=arrival_s
                    )
                else:
                    request = self.make(
                        ids,
                        params[i],
                        text=prompt.text,
                        cache_salt=prompt.cache_salt,
                        scheduling=options,
                        arrival_s=arrival_s,
                    )
            requests.append(request)
        return requests if lora_requests is None else self.with_adapters(requests, lora_requests)

    def with_adapters(
        self, requests: SequenceOf[Request], lora_requests: SequenceOf[LoRARequest | Adapter | None]
    ) -> list[Request]:
        """The requests with their adapters, as `Adapters.of` finds them; blocks and raises as that does."""
        pairs = zip(requests, self.adapters.of(lora_requests), strict=True)
        return [request if adapter is None else replace(request, adapter=adapter) for request, adapter in pairs]

    def make(
        self,
        token_ids: SequenceOf[int],
        params: SamplingParams,
        *,
        text: str | None = None,
        cache_salt: str | None = None,
        scheduling: SchedulingOptions = DEFAULT_SCHEDULING,
        arrival_s: float | None = None,
    ) -> Request:
        """A request that draws tokens, without a number; raises `RequestError` for what cannot be served.

        text: of the prompt, where it is known. arrival_s: on the clock, by default now.
        """
        has_kv_policy = self._uses("kv_policy", params.kv_policy, self.has_kv_policy, "kv_policy")
        may_draft = self._uses("speculation", params.speculation, self.has_drafts, "speculative_config")
        longest = MAX_STREAM_TOKENS if has_kv_policy else self.max_model_len
        prompt_ids = self.checked_ids(token_ids, longest=longest)
        params.validate_for(self.vocab_size, self.max_logprobs, longest)
        if self.tokenizer is None and (params.stop or params.bad_words):
            name = "stop" if params.stop else "bad_words"
            raise RequestError(f"{name} needs a tokenizer, and this model has none", name)
        room = longest - len(prompt_ids)
        filling = max(1, self.max_model_len - len(prompt_ids))
        max_tokens = filling if params.max_tokens is None else min(params.max_tokens, room)
        if params.min_tokens > max_tokens:
            raise RequestError(
                f"min_tokens={params.min_tokens} does not fit: the prompt of {len(prompt_ids)} tokens leaves {room} of "
                f"the model's context of {longest}",
                "min_tokens",
            )
        bad_words = self._bad_words(params)
        self._check_edits(params, bad_words)
        self._check_scheduling(scheduling)
        request = Request(
            request_id="",
            prompt_token_ids=prompt_ids,
            params=params,
            max_tokens=max_tokens,
            seed=0,
            eos_ids=() if params.ignore_eos else self.eos_ids,
            bad_words=bad_words,
            cache_salt=cache_salt,
            arrival_s=self.clock() if arrival_s is None else arrival_s,
            scheduling=scheduling,
            prompt=text,
            has_kv_policy=has_kv_policy,
            may_draft=may_draft,
        )
        if not leaves_token(request, NOTHING, self.vocab_size):
            reason = no_token_left(request)
            raise RequestError(reason, reason.param)
        self._check_constraint(params.constraint)
        if params.speculation:
            check_drafts(request, has_late_drafts=self.has_late_drafts)
        return request

    @staticmethod
    def _uses(name: str, asked: bool | None, is_there: bool, option: str) -> bool:
        """Whether a request uses what an `option` of the engine adds."""
        if asked and not is_there:
            raise RequestError(f"{name}=True: this engine was built without {option}; leave {name} out", name)
        return is_there and asked is not False

    def make_prefill_only(
        self,
        token_ids: SequenceOf[int],
        *,
        logprobs_start: int = 0,
        pooling: str | None = None,
        cache_salt: str | None = None,
        scheduling: SchedulingOptions = DEFAULT_SCHEDULING,
        arrival_s: float | None = None,
    ) -> Request:
        """A request that draws nothing: pooled hidden states, or log-probabilities from `logprobs_start` on.

        It has an id of its own and does not count as an arrival, so the seeds of other requests do not depend on it.
        """
        prompt_ids = self.checked_ids(token_ids, room=0)
        self._check_scheduling(scheduling)
        return Request(
            request_id=f"prompt-{next(self._prefill_only_numbers)}",
            prompt_token_ids=prompt_ids,
            params=SamplingParams(temperature=0, prompt_logprobs=0 if pooling is None else None, detokenize=False),
            max_tokens=0,
            seed=0,
            cache_salt=cache_salt,
            logprobs_start=logprobs_start,
            pooling=pooling,
            arrival_s=self.clock() if arrival_s is None else arrival_s,
            scheduling=scheduling,
        )

    def checked_ids(self, token_ids: SequenceOf[int], room: int = 1, longest: int | None = None) -> np.ndarray:
        """The ids of a prompt as int32[prompt_len]. longest: tokens of a sequence; None: of the context.

        Raises `RequestError` unless they are in the vocabulary and leave `room` tokens of the longest sequence.
        """
        longest = longest or self.max_model_len
        if not token_ids:
            raise RequestError("the prompt is empty: give at least one token", "prompt")
        if len(token_ids) + room > longest:
            needed = " and at least one must remain for the output" if room else ""
            raise RequestError(
                f"This model's maximum context length is {longest} tokens. However, your prompt contains "
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
        return np.array(token_ids, np.int32)

    def arrive(self, requests: SequenceOf[Request]) -> int:
        """Count admitted requests as the next to arrive; returns the number of the first. Calls must not overlap."""
        first = self.num_arrived
        self.num_arrived += sum(request.max_tokens > 0 for request in requests)
        return first

    def numbered(self, requests: SequenceOf[Request], first: int) -> Iterator[Request]:
        """Requests that arrived with the numbers from `first` on, with the ids and seeds that follow; in any thread."""
        return map(self._numbered, requests, itertools.count(first))

    def _numbered(self, request: Request, number: int) -> Request:
        if not request.max_tokens:  # has an id, and needs no seed
            return request
        return replace(request, request_id=str(number), seed=self._seed(request.params, number))

    def _seed(self, params: SamplingParams, number: int) -> int:
        if params.seed is not None:
            return params.seed & SEED_MASK
        return int(np.random.SeedSequence([self.seed & SEED_MASK, number]).generate_state(1, np.uint64)[0])

    def _bad_words(self, params: SamplingParams) -> BadWords:
        """Each bad word as it is spelled alone and after a space, where tokenizers often have another token."""
        if not params.bad_words or self.tokenizer is None:
            return ()
        words, spelled = self._spelled
        if words != params.bad_words:  # the requests of one call have the same ones
            for word in params.bad_words:
                check_unicode(word, "bad_words")
            forms = [form for word in params.bad_words for form in (word, " " + word.lstrip())]
            encoded = self.tokenizer.encode_batch(forms, add_special_tokens=False)
            spelled = tuple(dict.fromkeys(tuple(ids) for ids in encoded if ids))
            self._spelled = params.bad_words, spelled
        return spelled

    def _check_constraint(self, constraint: StructuredOutputsParams | None) -> None:
        if constraint is None or constraint is self._checked:  # the requests of one call have the same one
            return
        if self.tokenizer is None:
            raise RequestError(f"{PARAM} needs a tokenizer, and this model has none", PARAM)
        if self.check_grammar is None:
            raise RequestError(f"{PARAM} is not supported by this engine: leave it out", PARAM)
        self.check_grammar(constraint)
        self._checked = constraint

    def _barred(self, params: SamplingParams) -> tuple[int, ...]:
        """What min_tokens bans: the tokens that end the text."""
        eos_ids = () if params.ignore_eos else self.eos_ids
        return (*eos_ids, *(params.stop_token_ids or ())) if params.min_tokens else ()

    def _check_edits(self, params: SamplingParams, bad_words: BadWords) -> None:
        count = len(params.logit_bias or ()) + len(bad_words) + len(self._barred(params))
        if count > self.max_edits:
            raise RequestError(
                f"logit_bias, bad_words and the tokens that min_tokens bans change {count} logits; at most "
                f"{self.max_edits} can be changed",
                "logit_bias",
            )

    def _check_scheduling(self, scheduling: SchedulingOptions) -> None:
        for name in ("priority", "tenant"):
            value = getattr(scheduling, name)
            if value != getattr(DEFAULT_SCHEDULING, name) and name not in self.scheduling_fields:
                raise RequestError(
                    f"{name}={value!r} has no effect with this engine's scheduling_policy: leave it out, or build the "
                    "engine with another policy",
                    name,
                )
