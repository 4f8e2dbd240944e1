"""Host: `Speculation`: which rows draft in a step, from what their drafts and the steps have shown so far.

A verify bucket advances a row by its accepted drafts and one token, and takes longer than a decode bucket. It is used
where the rows are expected to advance by more in the same time. A row that advances by less pauses, twice as long after
each failure, and is then tried again.
"""

from collections import defaultdict, deque

import numpy as np

from jaxserve.core.buckets import Bucket
from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.core.slot_table import SlotTable
from jaxserve.core.step_outcome import StepOutcome
from jaxserve.core.step_plan import StepPlan

LEAST_GAIN = 1.05
"""Tokens in a given time, over those of decoding, from which on rows draft."""
MEMORY = 0.7
"""Weight of what was expected of a row, against what one more pass has shown."""
PROBE = 1.5
"""Tokens a pass that are expected of a row after a pause at least; so little that one pass in vain ends the attempt."""
FIRST_PAUSE, LONGEST_PAUSE = 8, 64  # tokens
NUM_TIMES = 5
"""Steps of a bucket whose times are kept. The least counts: others may contain the next step's compilation, 2.4 s in a
step of 70 ms."""
LEAST_TIMES = 2  # so that one is without


class Speculation:
    """max_drafts: the most drafts of a row in a pass."""

    def __init__(self, max_drafts: int, num_slots: int):
        self.max_drafts = max_drafts
        self._hoped = 1 + max_drafts / 4  # tokens a pass that are expected of a new sequence at most
        self._needed = LEAST_GAIN  # tokens a pass from which on the last step's rows gained
        self._epochs = np.full(num_slots, -1, np.int32)  # of the sequences that the columns below describe
        self._tokens_a_pass = np.zeros(num_slots)
        self._pauses = np.zeros(num_slots, np.int32)  # tokens, of the next pause
        self._resume_at = np.zeros(num_slots, np.int32)  # number of tokens
        self._times: defaultdict[Bucket, deque[float]] = defaultdict(lambda: deque(maxlen=NUM_TIMES))
        self._measured: set[Bucket] = set()  # a bucket's first step may have compiled it

    def drafts_of(self, slot_table: SlotTable, slots: np.ndarray, decode: Bucket, verify: Bucket) -> np.ndarray:
        """int32[S]: the most drafts of each slot in a pass of the next step; all 0 where decoding is faster.

        Decoding is measured first: drafts that always seem to pay would never be compared with it.
        """
        self._forget_others(slot_table, slots)
        may_draft = slot_table.may_draft[slots] & (slot_table.num_tokens[slots] >= self._resume_at[slots])
        expected = np.where(may_draft, self._tokens_a_pass[slots], 1.0).mean()
        is_known = len(self._times[decode]) >= LEAST_TIMES
        self._needed = LEAST_GAIN * self._slowdown(decode, verify)
        if not is_known or expected < self._needed:
            return np.zeros(len(slots), np.int32)
        return np.where(may_draft, self.max_drafts, 0).astype(np.int32)

    def observe(self, plan: StepPlan, outcome: StepOutcome, num_tokens: np.ndarray, device_s: float) -> None:
        """Record a step. num_tokens: int32[S], tokens of the rows' sequences after it."""
        if plan.bucket.max_rounds == 1:
            return
        if plan.bucket in self._measured:
            self._times[plan.bucket].append(device_s / max(1, outcome.num_rounds))
        self._measured.add(plan.bucket)
        if outcome.drafts is None:
            return
        own = (self._epochs[plan.slots] == plan.epochs) & (plan.max_drafts > 0)
        passes = np.minimum(outcome.num_tokens, outcome.num_rounds)  # rows that end early have fewer
        rows = np.flatnonzero(own & (passes > 0))
        slots, shown = plan.slots[rows], outcome.num_tokens[rows] / passes[rows]
        weight = MEMORY ** passes[rows]
        self._tokens_a_pass[slots] = weight * self._tokens_a_pass[slots] + (1 - weight) * shown
        retried = min(max(PROBE, 1.1 * self._needed), self._hoped)  # with less than is needed it is never tried
        has_failed, has_paid = self._tokens_a_pass[slots] < self._needed, self._tokens_a_pass[slots] > retried
        failed = slots[has_failed]
        self._resume_at[failed] = num_tokens[rows][has_failed] + self._pauses[failed]
        self._pauses[failed] = np.minimum(2 * self._pauses[failed], LONGEST_PAUSE)
        self._tokens_a_pass[failed] = retried
        self._pauses[slots[has_paid]] = FIRST_PAUSE

    def _forget_others(self, slot_table: SlotTable, slots: np.ndarray) -> None:
        new = slots[self._epochs[slots] != slot_table.epoch[slots]]
        self._epochs[new] = slot_table.epoch[new]
        self._tokens_a_pass[new] = self._hoped
        self._pauses[new], self._resume_at[new] = FIRST_PAUSE, 0

    def _slowdown(self, decode: Bucket, verify: Bucket) -> float:
        """Time of a pass with drafts over that of one without; 1 where either is not known."""
        with_drafts, without = self._times[verify], self._times[decode]
        return min(with_drafts) / min(without) if with_drafts and without else 1.0


def make_speculation(config: SpeculativeConfig | None, num_slots: int) -> Speculation | None:
    """None where the engine does not draft."""
    return None if config is None else Speculation(config.num_speculative_tokens, num_slots)
