"""Engines with the fake runner, requests for them, and the naive loop that their outputs must equal."""

import time
from collections.abc import Callable
from functools import reduce
from itertools import accumulate

import numpy as np

from jaxserve.core.buckets import make_buckets, with_verify
from jaxserve.core.device_ops import DeviceOp
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.options.kv_policy_config import StreamingConfig
from jaxserve.core.options.lora_request import Adapter
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.scheduling_options import DEFAULT_SCHEDULING, SchedulingOptions
from jaxserve.core.request import Request
from jaxserve.core.step_outcome import StepOutcome
from jaxserve.core.step_plan import StepPlan
from jaxserve.core.token_deltas import TokenDeltas
from jaxserve.engine.loop.engine import Engine
from jaxserve.kv.streaming_policy import StreamingPolicy
from jaxserve.runner.fake.fake_adapter import adapter_key
from jaxserve.runner.fake.fake_model import EMPTY_PREFIX, FakeModel, extend_prefix
from jaxserve.runner.fake.fake_runner import FakeRunner
from jaxserve.scheduler.adapters.adapter_gate import AdapterSource
from jaxserve.scheduler.logit_edits import may_force
from jaxserve.scheduler.policy.scheduling_policy import SchedulingPolicy
from jaxserve.scheduler.queue_limits import QueueLimits
from jaxserve.scheduler.scheduler import Scheduler
from jaxserve.scheduler.speculation import Speculation
from tests.support.fakes.fake_adapters import MAX_PAGES, fake_packed
from tests.support.fakes.fake_grammars import MODEL, FakeGrammar, FakeMatchers

LONGEST_STREAM = 300


def make_scheduler(
    windows: tuple[int | None, ...] = (None,),
    *,
    page_size: int = 4,
    num_pages: int = 200,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 32,
    max_model_len: int = 64,
    max_chunk_tokens: int | None = None,
    prefix_eviction: str | None = None,
    num_host_pages: int = 0,
    policy: SchedulingPolicy | None = None,
    queue_limits: QueueLimits | None = None,
    max_drafts: int = 0,
    sinks_and_window: tuple[int, int] | None = None,
    has_grammars: bool = False,
    adapters: AdapterSource | None = None,
    max_loras: int = 0,
) -> Scheduler:
    kv_policy = None
    if sinks_and_window is not None:
        num_sinks, window = sinks_and_window
        kv_policy = StreamingPolicy(StreamingConfig(name="streaming", num_sinks=num_sinks, window=window))
    buckets = make_buckets(max_num_seqs, max_num_batched_tokens, -(-max_model_len // page_size))
    buckets = with_verify(buckets, max_drafts) if max_drafts else buckets
    return Scheduler(
        KVGroups(windows, page_size),
        buckets,
        num_pages=num_pages,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=max_model_len,
        vocab_size=MODEL.vocab_size,
        max_chunk_tokens=max_chunk_tokens,
        prefix_eviction=prefix_eviction,
        num_host_pages=num_host_pages,
        policy=policy,
        queue_limits=queue_limits,
        speculation=Speculation(max_num_seqs) if max_drafts else None,
        num_draft_masks=buckets.most_drafts,
        kv_policy=kv_policy,
        matchers=FakeMatchers() if has_grammars else None,
        adapters=adapters,
        max_loras=max_loras,
        max_adapter_pages=0 if adapters is None else MAX_PAGES,
    )


class SimulatedClock:
    """A clock that only tests advance."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def make_engine(
    windows: tuple[int | None, ...] = (None,),
    *,
    model: FakeModel = MODEL,
    clock: Callable[[], float] = time.monotonic,
    **limits,
) -> Engine:
    scheduler = make_scheduler(windows, **limits)
    limits = {"page_size": 4, "num_pages": 200, "max_num_seqs": 8, "max_model_len": 64} | limits
    kv_policy = scheduler.state.limits.kv_policy
    runner = FakeRunner(
        model,
        KVGroups(windows, limits["page_size"]),
        num_slots=limits["max_num_seqs"],
        num_pages=limits["num_pages"],
        max_model_len=limits["max_model_len"] if kv_policy is None else LONGEST_STREAM,
        num_sinks=None if kv_policy is None else kv_policy.config.num_sinks,
    )
    return Engine(scheduler, runner, clock=clock)


def make_request(
    request_id: str,
    prompt: int | list[int],
    max_tokens: int = 8,
    *,
    seed: int = 0,
    bad_words: tuple[tuple[int, ...], ...] = (),
    logprobs_start: int = 0,
    pooling: str | None = None,
    cache_salt: str | None = None,
    arrival_s: float = 0.0,
    scheduling: SchedulingOptions = DEFAULT_SCHEDULING,
    has_kv_policy: bool = False,
    adapter: Adapter | None = None,
    **params,
) -> Request:
    """A request for a prompt, or for a random prompt of so many tokens, by seed; token 0 ends the text."""
    if isinstance(prompt, int):
        prompt = np.random.default_rng(seed).integers(1, MODEL.vocab_size, prompt).tolist()
    return Request(
        request_id=request_id,
        prompt_token_ids=np.array(prompt, np.int32),
        params=SamplingParams(max_tokens=max(1, max_tokens), **params),
        max_tokens=max_tokens,
        seed=seed,
        eos_ids=(0,),
        bad_words=bad_words,
        logprobs_start=logprobs_start,
        pooling=pooling,
        cache_salt=cache_salt,
        arrival_s=arrival_s,
        scheduling=scheduling,
        has_kv_policy=has_kv_policy,
        adapter=adapter,
    )


def naive(
    request: Request, index: int = 0, *, model: FakeModel = MODEL, max_model_len: int = 64
) -> tuple[list[int], str]:
    """Tokens and finish reason of a sample that runs alone, token by token."""
    prompt, output = request.prompt_token_ids.tolist(), []
    if request.max_tokens == 0:
        return output, "length"
    grammar = grammar_of(request)
    prefix = reduce(extend_prefix, prompt, base_of(request))
    while True:
        position = len(prompt) + len(output)
        allowed = allowed_next(request, output, model.vocab_size)
        token = model.draw(prefix, request.seed, index, position, allowed.__contains__)
        if grammar is not None:
            if not allowed and grammar.may_end(output):
                return output, "stop"
            if output and may_force(request) and (forced := grammar.forced(output, eos_ids_of(request))):
                token = forced[0]
        if token is None:
            return output, "error"
        output.append(token)
        prefix = extend_prefix(prefix, token)
        if token in request.stop_ids and len(output) > request.params.min_tokens:
            return output, "stop"
        is_full = position + 1 == max_model_len and not request.has_kv_policy
        if len(output) == request.max_tokens or is_full:
            return output, "length"


def base_of(request: Request) -> int:
    """What the prefixes of a request begin with, by its adapter."""
    return EMPTY_PREFIX if request.adapter is None else adapter_key(fake_packed(request.adapter.request.lora_path))


def grammar_of(request: Request) -> FakeGrammar | None:
    constraint = request.params.constraint
    return None if constraint is None or constraint.regex is None else FakeGrammar(constraint.regex)


def eos_ids_of(request: Request) -> tuple[int, ...]:
    return () if request.params.ignore_eos else request.eos_ids


def naive_logprobs(
    tokens: list[int], start: int = 1, *, model: FakeModel = MODEL, base: int = EMPTY_PREFIX
) -> list[float]:
    """The model's log-probability of each token from position `start` on."""
    prefixes = list(accumulate(tokens, extend_prefix, initial=base))
    return [model.logprob(prefixes[i], tokens[i]) for i in range(start, len(tokens))]


def naive_pooled(request: Request, *, model: FakeModel = MODEL) -> float:
    """The sum of the hidden states over the prompt, or the last of them."""
    prefixes = accumulate(request.prompt_token_ids.tolist(), extend_prefix, initial=base_of(request))
    states = [model.hidden(prefix) for prefix in prefixes][1:]
    return sum(states) if request.pooling == "mean" else states[-1]


def allowed_next(request: Request, output: list[int], vocab_size: int) -> set[int]:
    """The tokens that a request allows after its output."""
    params = request.params
    allowed = set(range(vocab_size) if params.allowed_token_ids is None else params.allowed_token_ids)
    if (grammar := grammar_of(request)) is not None:
        allowed &= grammar.allowed(output, eos_ids_of(request))
    if len(output) < params.min_tokens:
        allowed -= set(request.stop_ids)
    return allowed - {
        word[-1] for word in request.bad_words if len(word) == 1 or output[1 - len(word) :] == list(word[:-1])
    }


class Driver:
    """Runs a scheduler without a model: every row draws the same token, and one step stays in flight."""

    def __init__(self, scheduler: Scheduler, token: int = 5):
        self.scheduler, self.token = scheduler, token
        self.in_flight: StepPlan | None = None
        self.late_ops: list[tuple[DeviceOp, ...]] = []  # of each step after the first

    def steps(self, count: int) -> list[StepPlan]:
        """The plans of the next `count` steps, each made before the previous one is committed."""
        plans = []
        for _ in range(count):
            plan = self.scheduler.schedule()
            if self.in_flight is not None:
                self.commit(self.in_flight)
                self.late_ops.append(() if plan is None else self.scheduler.late_draw(plan).ops)
            self.in_flight = plan
            if plan is not None:
                plans.append(plan)
        return plans

    def commit(self, plan: StepPlan, **outcome) -> TokenDeltas:
        shape = plan.num_rows, plan.num_rounds
        tokens, is_bad = np.full(shape, self.token, np.int32), np.zeros(shape, bool)
        outcome = {"tokens": tokens, "is_bad": is_bad} | outcome
        outcome |= {name: np.reshape(outcome[name], shape) for name in ("tokens", "is_bad")}
        return self.scheduler.commit(plan, StepOutcome(plan.step_id, plan.num_rounds, plan.max_tokens, **outcome))
