"""Engines of the tiny checkpoints, built once per set of options, with one decode and one mixed bucket each."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from jaxserve import LLM, SamplingParams
from jaxserve.core.buckets import Bucket
from jaxserve.core.sequence import Sequence
from jaxserve.engine.build.adapter_reading import max_adapter_pages
from jaxserve.engine.build.build import make_speculation
from jaxserve.engine.inputs.prompt import Prompt
from jaxserve.engine.loop.engine import Engine
from jaxserve.kv.streaming_policy import StreamingPolicy
from jaxserve.scheduler.earlier_outputs import make_earlier_outputs
from jaxserve.scheduler.policy.policies import make_policy
from jaxserve.scheduler.scheduler import Scheduler
from tests.support.golden_data import checkpoint

SIZES: dict[str, Any] = {
    "dtype": "float32",
    "max_model_len": 128,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 32,
    "num_pages": 300,
    "buckets": "8 32x8",
}
SMALL = SIZES | {"enable_prefix_caching": False}  # no test depends on KV of another one
# Limits of the scheduler only: engines with lower limits run the same programs on the same runner.
SCHEDULED = {name: SMALL[name] for name in ("num_pages", "max_num_seqs")} | {"max_chunk_tokens": 32, "max_loras": 3}
Options = tuple[tuple[str, Any], ...]


def flags_of(options: dict[str, Any]) -> list[str]:
    """Options as command-line flags."""
    flags: list[str] = []
    for name, value in options.items():
        name = name.replace("_", "-")
        flags += [f"--{'' if value else 'no-'}{name}"] if isinstance(value, bool) else [f"--{name}", str(value)]
    return flags


def tiny_engine(
    family: str, *, prefix_eviction: str | None = None, scheduling_policy: str = "fcfs", **options: Any
) -> LLM:
    """A cached engine. Lower limits than in `SCHEDULED`, a prefix cache or another policy need no compilation."""
    less = {name: value for name, value in options.items() if name in SCHEDULED and value <= SCHEDULED[name]}
    rest = {name: value for name, value in options.items() if name not in less}
    return _limited(family, _sorted(SMALL | rest), _sorted(less), prefix_eviction, scheduling_policy)


def _sorted(options: dict[str, Any]) -> Options:
    return tuple(sorted(options.items()))


@cache
def _engine(family: str, options: Options) -> LLM:
    return LLM(str(checkpoint(family)), **dict(options))


@cache
def _limited(family: str, options: Options, less: Options, prefix_eviction: str | None, policy: str) -> LLM:
    """A separate engine on the runner of the engine with `options`, or that engine where nothing else is asked."""
    whole = _engine(family, options)
    if not less and prefix_eviction is None and policy == "fcfs":
        return whole
    return rescheduled(whole, prefix_eviction, policy, **dict(less))


def rescheduled(
    whole: LLM, prefix_eviction: str | None, policy: str = "fcfs", max_loras: int | None = None, **less: Any
) -> LLM:
    """A new engine on the runner of `whole`, with lower limits and its own prefix cache, or none."""
    parts, sizes = whole.parts, replace(whole.parts.sizes, **less)
    adapters = parts.input_processor.adapters
    scheduler = Scheduler(
        parts.spec.programs.groups,
        parts.spec.buckets,
        num_pages=sizes.num_pages,
        max_num_seqs=sizes.max_num_seqs,
        max_num_batched_tokens=sizes.max_num_batched_tokens,
        max_model_len=sizes.max_model_len,
        vocab_size=parts.model.vocab_size,
        max_chunk_tokens=sizes.max_chunk_tokens,
        policy=make_policy(policy),
        prefix_eviction=prefix_eviction,
        num_host_pages=sizes.num_host_pages,
        speculation=make_speculation(parts.spec.programs.settings.proposer, sizes.max_num_seqs),
        earlier_outputs=make_earlier_outputs(whole.config.speculation),
        num_draft_masks=parts.spec.programs.num_draft_masks,
        kv_policy=StreamingPolicy(whole.config.streaming) if whole.config.streaming is not None else None,
        adapters=adapters.store,
        max_loras=max_loras or adapters.max_loras,
        max_adapter_pages=max_adapter_pages(parts.spec.programs),
    )
    engine = Engine(scheduler, parts.runner, max_rounds=parts.spec.buckets.max_rounds)
    spec = replace(parts.spec, sizes=sizes)
    fields = scheduler.state.policy.fields
    processor = replace(parts.input_processor, scheduling_fields=fields) if fields else parts.input_processor
    return LLM.from_parts(whole.config, replace(parts, engine=engine, spec=spec, input_processor=processor))


def forget_engines() -> None:
    """Clears the caches, which frees engines without other references; `tiny_engine` then builds new ones."""
    _engine.cache_clear()
    _limited.cache_clear()


class FixedRounds:
    """Replaces `MultiStepBudget` and `HiddenRounds` with a constant number of rounds."""

    def __init__(self, num_rounds: int):
        self.num_rounds = num_rounds

    @property
    def hidden(self) -> "FixedRounds":
        return self

    def plan(self, bucket: Bucket) -> None:
        pass

    def observe(self, *_: object, **__: object) -> None:
        pass


@contextmanager
def driven(llm: LLM, num_rounds: int, is_overlapped: bool) -> Iterator[list[int]]:
    """Runs the engine with up to `num_rounds` rounds per step, overlapped or not; yields the rounds of each plan."""
    engine, runner = llm.parts.engine, llm.parts.runner
    before, submit, planned = (engine.multi_step, engine.is_overlapped), runner.submit, []
    engine.multi_step, engine.is_overlapped = FixedRounds(num_rounds), is_overlapped
    runner.submit = lambda plan: planned.append(plan.num_rounds) or submit(plan)
    try:
        yield planned
    finally:
        (engine.multi_step, engine.is_overlapped), runner.submit = before, submit


def submit(llm: LLM, prompt: list[int], params: SamplingParams, **changes: Any) -> Sequence:
    """Adds one request to the engine, with fields replaced by `changes`; returns its first sequence."""
    (request,) = llm.admit([Prompt(None, prompt)], params)
    return llm.parts.engine.add(replace(request, **changes))[0]


def drain(llm: LLM) -> None:
    """Steps until the engine has no work."""
    for _ in llm.parts.engine.drain():
        pass
