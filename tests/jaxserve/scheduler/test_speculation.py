"""Rows draft while that is expected to be faster."""

from types import SimpleNamespace

import numpy as np
import pytest

from jaxserve.core.buckets import Bucket
from jaxserve.core.step_outcome import DraftCounts, StepOutcome
from jaxserve.scheduler.speculation import FIRST_PAUSE, LONGEST_PAUSE, Speculation

DECODE, VERIFY = Bucket(4, 4, 8), Bucket(32, 4, 8, max_drafts=7)


class Rows:
    """A slot table of four rows that all take part in each step."""

    def __init__(self, num_rows: int = 4, max_drafts: int = 7):
        self.speculation, self.num_rows = Speculation(max_drafts, num_rows), num_rows
        self.slots = np.arange(num_rows)
        self.table = SimpleNamespace(
            epoch=np.zeros(num_rows, np.int32),
            num_tokens=np.full(num_rows, 100, np.int32),
            may_draft=np.ones(num_rows, bool),
        )
        for seconds in (1000.0, 1.0, 1000.0):  # the first step may have compiled its bucket, the last the next step's
            self.observe(SimpleNamespace(bucket=DECODE), StepOutcome(0, 1, *np.zeros((3, 1))), seconds)

    def observe(self, plan, outcome: StepOutcome, seconds: float) -> None:
        self.speculation.observe(plan, outcome, self.table.num_tokens, seconds)

    def drafts(self) -> list[int]:
        return self.speculation.drafts_of(self.table, self.slots, DECODE, VERIFY).tolist()

    def step(self, tokens_a_pass: list[int], verify_s: float = 1.0) -> None:
        """One pass of a verify bucket where a row may draft, else one of a decode bucket, which takes a second."""
        drafts = np.array(self.drafts(), np.int32)
        num_tokens = np.where(drafts > 0, tokens_a_pass, 1).astype(np.int32)
        self.table.num_tokens += num_tokens
        bucket = VERIFY if drafts.any() else DECODE
        plan = SimpleNamespace(bucket=bucket, slots=self.slots, epochs=self.table.epoch.copy(), max_drafts=drafts)
        counts = DraftCounts(drafts[:, None], num_tokens[:, None] - 1) if drafts.any() else None
        zeros = np.zeros((self.num_rows, 1))
        outcome = StepOutcome(0, 1, num_tokens, zeros, zeros, drafts=counts)
        self.observe(plan, outcome, verify_s if drafts.any() else 1.0)


def test_rows_draft_as_long_as_drafts_are_accepted():
    rows = Rows()
    for _ in range(50):
        assert rows.drafts() == [7] * 4
        rows.step([5, 3, 8, 2])


def test_a_row_whose_drafts_are_rejected_pauses_longer_each_time():
    rows, pauses, last = Rows(), [], 0
    for i in range(600):
        drafts = rows.drafts()
        assert drafts[1:] == [7] * 3
        if not drafts[0]:
            last += 1
        elif last:
            pauses.append(last)
            last = 0
        rows.step([1, 4, 4, 4])
        assert i < 20 or pauses or last
    assert pauses[:4] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE, LONGEST_PAUSE]
    assert set(pauses[3:]) == {LONGEST_PAUSE}


def test_rows_that_gained_too_little_are_tried_again():
    """Passes with drafts take 1.4 times as long, and for a while they yield 1.2 tokens: less than they cost."""
    rows = Rows(num_rows=1)
    found = []
    for i in range(400):
        found.append(rows.drafts()[0] > 0)
        rows.step([1 + (i % 5 == 0) if i < 200 else 6], verify_s=1.4)
    assert 0 < sum(found[20:200]) < 20
    assert all(found[300:])


def test_a_new_sequence_in_a_slot_begins_anew():
    rows = Rows()
    while rows.drafts()[0]:
        rows.step([1, 4, 4, 4])
    rows.table.epoch[0] += 1
    assert rows.drafts() == [7] * 4


def test_rows_that_the_host_must_see_do_not_draft():
    rows = Rows()
    rows.table.may_draft[2] = False
    assert rows.drafts() == [7, 7, 0, 7]


@pytest.mark.parametrize(("verify_s", "is_used"), [(2.0, True), (5.0, False)])
def test_nobody_drafts_where_passes_with_drafts_take_too_long(verify_s, is_used):
    """Rows advance by three tokens a pass."""
    rows = Rows()
    for _ in range(12):
        rows.step([3] * 4, verify_s)
    assert any(rows.drafts()) == is_used


def test_decoding_is_measured_first():
    rows = Rows()
    rows.speculation = Speculation(7, 4)
    for _ in range(3):
        assert not any(rows.drafts())
        rows.step([3] * 4)
    assert rows.drafts() == [7] * 4


def test_a_decode_bucket_of_another_size_is_measured_too():
    rows = Rows()
    for _ in range(3):
        rows.step([3] * 4)
    other = Bucket(2, 2, 8)
    assert not rows.speculation.drafts_of(rows.table, rows.slots[:2], other, VERIFY).any()
    assert rows.drafts() == [7] * 4
