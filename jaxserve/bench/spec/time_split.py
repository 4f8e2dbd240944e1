"""Wiring: `TimeSplit`: what drafting, verification and the host take of the time of passes with drafts.

Drafts are made and verified in one dispatch, which the host sees as one duration. The profiler sees its operations, but
slows them down: so durations come from timed passes, and only the ratio of the two from a traced one.

    timed passes     | host | step in a verify bucket    | other step | …
    traced steps              | drafting | verification  |
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from jaxserve.bench.profile.profiler_trace import read_profiler_trace
from jaxserve.bench.profile.traced_batch import batch_under_way, device_trace, times_of_programs
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.engine.loop.step_stats import StepLog

if TYPE_CHECKING:
    from jaxserve.engine.llm import LLM

DRAFTING = frozenset(("draft", "propose"))  # scopes in which proposers work, with all that is inside
ENOUGH_ROUNDS, MOST_ROUNDS = 64, 512
"""After so many rounds with drafts, or altogether, a trace ends: one of SmolLM2 has 0.2 MB a round."""


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """Shares of the time, which add up to 1. drafting, verifying: steps in verify buckets. other: the other steps, with
    prompts or without drafts. host: no step was in flight.
    """

    drafting: float
    verifying: float
    other: float
    host: float


def split_time(log: StepLog, wall_s: float, drafting: float | None) -> TimeSplit | None:
    """That of the steps in `wall_s` seconds; None where steps have drafts and nothing is known of them.

    drafting: from `trace_drafting`.
    """
    verify_s = sum(record.moments.device_s for record in log.records if record.bucket.is_verify)
    if drafting is None and verify_s:
        return None
    device_s, in_drafts = log.report(wall_s).device_s, drafting or 0.0
    return TimeSplit(
        drafting=verify_s * in_drafts / wall_s,
        verifying=verify_s * (1 - in_drafts) / wall_s,
        other=(device_s - verify_s) / wall_s,
        host=1 - device_s / wall_s,
    )


def trace_drafting(llm: "LLM", prompts: Sequence[Any], params: Sequence[SamplingParams]) -> float | None:
    """The share of drafting in the device's work in verify buckets, in traced steps of a batch; None: there was none.

    The rest of the batch is aborted.
    """
    log, outputs = StepLog(), llm.output_processor
    with TemporaryDirectory() as name:
        folder = Path(name)
        with batch_under_way(llm, prompts, params, log), device_trace(folder):
            while outputs.has_work and not _is_enough(log):
                outputs.step()
            llm.parts.runner.wait()  # a trace must hold the step that runs still
        programs = times_of_programs(llm, read_profiler_trace(folder, ()))
    return drafting_of(programs, {str(bucket) for bucket in llm.parts.spec.buckets.verify})


def _is_enough(log: StepLog) -> bool:
    num_verified = sum(record.num_rounds for record in log.records if record.bucket.is_verify)
    return num_verified >= ENOUGH_ROUNDS or sum(record.num_rounds for record in log.records) >= MOST_ROUNDS


def drafting_of(programs: list[dict[str, Any]], names: Collection[str]) -> float | None:
    """The share of drafting in the work of those programs of `device_times` that have these names; None: none ran.

    Time between operations belongs to neither part; operations without a scope do not draft.
    """
    drafting_ms = total_ms = 0.0
    for program in programs:
        if program["name"] in names:
            times, runs = program["scopes_ms"], program["num_runs"]
            drafting_ms += runs * sum(ms for scope, ms in times.items() if not DRAFTING.isdisjoint(scope.split("/")))
            total_ms += runs * (sum(times.values()) + program["unnamed_ms"])
    return drafting_ms / total_ms if total_ms else None
