"""Host: `StepRecord`: what one step of an engine took; `StepReport`: times, padding and idleness of many.

The engine passes each record to its `observer`, if it has one; without one it only reads the clock.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from jaxserve.core.buckets import Bucket
from jaxserve.core.step_outcome import DraftCounts, StepOutcome
from jaxserve.core.step_plan import StepPlan

STEP_TYPES = ("decode", "mixed", "prefill")


@dataclass(slots=True)
class StepMoments:
    """When a step reached each stage, in seconds on the monotonic clock.

    Another step is collected and committed between `submitted_s` and `collecting_s`: the pipeline is one step deep.
    """

    planning_s: float
    planned_s: float
    submitting_s: float = 0.0
    submitted_s: float = 0.0
    collecting_s: float = 0.0
    collected_s: float = 0.0
    committed_s: float = 0.0
    previous_s: float = 0.0
    """When the step before was collected."""

    @property
    def device_s(self) -> float:
        """Seconds that the step occupied the device, as the host sees it: an overlap belongs to the earlier step."""
        return self.collected_s - max(self.submitted_s, self.previous_s)


@dataclass(slots=True)
class StepRecord:
    """One committed step. num_rows, num_tokens: what was computed for sequences; those of the bucket include padding.

    num_decodes: rows with a single token, among them the last chunk of a prompt if it is that short. num_rounds: rounds
    that ran; each computes the bucket once. drafts: of a verify bucket.
    """

    bucket: Bucket
    num_rows: int
    num_tokens: int
    num_decodes: int
    moments: StepMoments
    num_rounds: int = 1
    drafts: DraftCounts | None = None

    @classmethod
    def of(cls, plan: StepPlan, outcome: StepOutcome, moments: StepMoments) -> "StepRecord":
        if not outcome.num_rounds:  # all rows had ended before
            return cls(plan.bucket, 0, 0, plan.num_decodes, moments, 0)
        num_tokens = plan.num_tokens + int((outcome.num_tokens - 1).clip(0).sum())
        if outcome.drafts is not None:
            num_tokens += int((outcome.drafts.num_proposed - outcome.drafts.num_accepted).sum())
        return cls(
            plan.bucket, plan.num_rows, num_tokens, plan.num_decodes, moments, outcome.num_rounds, outcome.drafts
        )

    @property
    def kind(self) -> str:
        """decode: one token per row; prefill: longer chunks of prompts only; mixed: both."""
        if self.bucket.only_decodes or self.num_decodes == self.num_rows:
            return "decode"
        return "mixed" if self.num_decodes else "prefill"


Observer = Callable[[StepRecord], None]


@dataclass(frozen=True, slots=True)
class KindTimes:
    """Steps of one kind. p50_s, p99_s: of the time that a round occupied the device (see `StepReport.device_s`)."""

    count: int
    p50_s: float
    p99_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class StepReport:
    """Many steps in `wall_s` seconds.

    device_s: time with a step in flight, as the host sees it: each step from its submission, or from the collection of
    the step before where that is later, to its own collection. idle_share: the fraction of wall_s outside device_s, in
    which the device was certainly idle. host_share: the fraction of wall_s in which the host did not wait for the
    device. A device that ends a step before the host collects it idles unseen, so its idle fraction lies between the
    two. plan_s, submit_s, wait_s, commit_s: the host's time in the engine; outside_s: the rest of its time (texts, the
    caller). Where shapes are compiled on demand, that time is in submit_s and in the step's time.
    token_padding, row_padding: fractions of the computed token positions, and of the head's rows, that were padding.
    """

    wall_s: float
    num_steps: int
    num_rows: int
    num_tokens: int
    token_padding: float
    row_padding: float
    device_s: float
    idle_share: float
    host_share: float
    plan_s: float
    submit_s: float
    wait_s: float
    commit_s: float
    outside_s: float
    kinds: dict[str, KindTimes]
    buckets: dict[str, int]
    """Steps of each bucket, the most frequent first."""


class StepLog:
    """An observer that keeps every record, for a run that ends."""

    def __init__(self) -> None:
        self.records: list[StepRecord] = []

    def __call__(self, record: StepRecord) -> None:
        self.records.append(record)

    def report(self, wall_s: float) -> StepReport:
        """What happened in `wall_s` seconds that held all steps."""
        records = self.records
        sizes = np.array([_sizes(r) for r in records], np.int64).reshape(-1, 4).sum(axis=0)
        num_rows, num_tokens, padded_rows, padded_tokens = sizes.tolist()
        moments = {f.name: np.array([getattr(r.moments, f.name) for r in records]) for f in fields(StepMoments)}
        device = np.array([r.moments.device_s for r in records])
        wait_s, device_s = _total(moments, "collecting_s", "collected_s"), float(device.sum())
        plan_s, submit_s = _total(moments, "planning_s", "planned_s"), _total(moments, "submitting_s", "submitted_s")
        commit_s = _total(moments, "collected_s", "committed_s")
        kinds = np.array([r.kind for r in records], str)
        rounds = np.array([r.num_rounds for r in records])
        names = [str(r.bucket) for r in records]
        return StepReport(
            wall_s=wall_s,
            num_steps=len(records),
            num_rows=num_rows,
            num_tokens=num_tokens,
            token_padding=1 - num_tokens / max(padded_tokens, 1),
            row_padding=1 - num_rows / max(padded_rows, 1),
            device_s=device_s,
            idle_share=1 - device_s / wall_s,
            host_share=1 - wait_s / wall_s,
            plan_s=plan_s,
            submit_s=submit_s,
            wait_s=wait_s,
            commit_s=commit_s,
            outside_s=wall_s - plan_s - submit_s - wait_s - commit_s,
            kinds={
                kind: _times(device[kinds == kind], rounds[kinds == kind])
                for kind in STEP_TYPES
                if (kinds == kind).any()
            },
            buckets={name: names.count(name) for name in sorted(set(names), key=names.count, reverse=True)},
        )


def _sizes(record: StepRecord) -> tuple[int, int, int, int]:
    """What was computed, and what with padding: rows of the head, tokens."""
    bucket, num_rounds = record.bucket, record.num_rounds
    num_rows = record.num_tokens if bucket.only_decodes else record.num_rows
    return num_rows, record.num_tokens, bucket.num_heads * num_rounds, bucket.num_tokens * num_rounds


def _total(moments: dict[str, np.ndarray], start: str, end: str) -> float:
    return float((moments[end] - moments[start]).sum())


def _times(seconds: np.ndarray, rounds: np.ndarray) -> KindTimes:
    p50, p99 = np.percentile(seconds / np.maximum(rounds, 1), [50, 99]).tolist()
    return KindTimes(len(seconds), p50, p99, float(seconds.sum()))
