"""Rows draft while that is expected to be faster, in the bucket in which they gain most."""

from types import SimpleNamespace

import numpy as np
import pytest

from jaxserve.core.buckets import Bucket
from jaxserve.core.step_outcome import DraftCounts, StepOutcome
from jaxserve.scheduler import speculation
from jaxserve.scheduler.costs import earned_passes
from jaxserve.scheduler.speculation import LEAST_PAUSE, TRIAL_SHARE, Speculation

DECODE, NARROW, WIDE = Bucket(4, 4, 8), Bucket(16, 4, 8, max_drafts=3), Bucket(32, 4, 8, max_drafts=7)
TIMES = {DECODE: 1.0, NARROW: 1.0, WIDE: 1.0}


class Rows:
    """A slot table of rows that all take part in each step. times: seconds of a pass by bucket. read_s: of a pass in
    which a draft model catches up; None: drafts are of another kind."""

    def __init__(
        self,
        num_rows: int = 4,
        times: dict[Bucket, float] = TIMES,
        verify: tuple[Bucket, ...] = (WIDE,),
        depth: int = 100,
        read_s: float | None = None,
    ):
        self.speculation = Speculation(num_rows, [lambda count: min(count, depth)], [read_s is not None])
        self.step_id, self.read_s, self.unread = 0, read_s or 0.0, np.zeros(num_rows, int)
        self.seconds = list[float]()
        self.num_rows, self.times, self.verify = num_rows, times, verify
        self.slots, self.samples = np.arange(num_rows), np.ones(num_rows, bool)
        self.table, self.may_draft = SimpleNamespace(epoch=np.zeros(num_rows, np.int32)), np.ones(num_rows, bool)
        for seconds in (1000.0, 1.0, 1000.0):  # the first step may have compiled its bucket, the last the next step's
            self.observe(self.plan(DECODE, np.zeros(num_rows, np.int32)), StepOutcome(0, 1, *np.zeros((3, 1))), seconds)

    def observe(self, plan, outcome: StepOutcome, seconds: float) -> None:
        self.speculation.observe(plan, outcome, seconds)

    def choose(self, decode: Bucket = DECODE):
        self.step_id += 1
        return self.speculation.choose(self.step_id, self.table, self.slots, self.may_draft, decode, self.verify)

    def plan(self, bucket: Bucket, most: np.ndarray, step_id: int | None = None):
        """Of a step; by default it is the last one that was chosen."""
        return SimpleNamespace(
            step_id=self.step_id if step_id is None else step_id,
            bucket=bucket,
            late_rows=(),
            slots=self.slots,
            epochs=self.table.epoch.copy(),
            max_drafts=most,
            proposers=np.zeros(self.num_rows, np.int32),
            samples=self.samples,
            num_computed=lambda num_tokens: num_tokens,
        )

    def step(self, accepted: list[int]) -> list[int]:
        """One pass, in which rows accept so many drafts if they have as many; returns the most that they might have."""
        drafts = self.choose()
        none = np.zeros(self.num_rows, np.int32)
        bucket, most = (DECODE, none) if drafts is None else drafts[:2]
        found = np.minimum(accepted, most).astype(np.int32)
        counts = None if drafts is None else DraftCounts(most[:, None], found[:, None])
        zeros, seconds = np.zeros((self.num_rows, 1)), self.times[bucket]
        if bucket.is_verify:
            seconds += self.read_s * (self.unread.max() // (1 + bucket.max_drafts))
        self.unread = found if bucket.is_verify else self.unread + 1
        self.seconds.append(seconds)
        self.observe(self.plan(bucket, most), StepOutcome(0, 1, 1 + found, zeros, zeros, drafts=counts), seconds)
        return most.tolist()


def test_rows_draft_as_long_as_drafts_are_accepted():
    rows = Rows()
    for _ in range(50):
        assert rows.step([4, 2, 7, 1]) == [7] * 4


@pytest.mark.parametrize("are_forced", [True, False])
def test_passes_in_which_tokens_were_forced_say_nothing_of_drafts(are_forced):
    rows = Rows()
    rows.step([7] * 4)
    rows.samples = np.full(4, not are_forced)
    found = [rows.step([0] * 4) for _ in range(400)]
    assert (found == [[7] * 4] * 400) == are_forced


def test_a_step_whose_rows_had_all_ended_is_no_pass():
    """The one after a lone request's end, which was submitted before that was known, takes no time."""
    rows, none = Rows(times=TIMES | {WIDE: 2.0}), np.zeros(4, np.int32)
    for _ in range(50):
        assert rows.step([7] * 4) == [7] * 4
        rows.observe(rows.plan(DECODE, none, 10**6), StepOutcome(0, 0, *np.zeros((3, 1))), 0.0007)


@pytest.mark.parametrize("seconds", [1.0, 1.5, 2.0])
def test_trials_take_a_small_share_of_the_time(seconds):
    """Of rows whose drafts are never accepted: all are tried together, in passes that take so many seconds."""
    rows = Rows(times=TIMES | {WIDE: seconds})
    found = [rows.step([0] * 4) for _ in range(1000)]
    assert {tuple(drafts) for drafts in found} == {(0,) * 4, (7,) * 4}
    trials = np.flatnonzero([drafts[0] for drafts in found])[2:]  # the first two measure what a pass takes
    assert len(trials) > 5
    assert len(set(np.diff(trials).tolist())) == 1
    assert trials[1] - trials[0] >= LEAST_PAUSE
    assert len(trials) * (seconds - 1) <= TRIAL_SHARE * len(found)


@pytest.mark.parametrize(("accepted", "is_used"), [(7, True), (3, False)])
def test_all_rows_draft_where_they_gain_together(accepted, is_used):
    """One row of four gains: by 8 tokens the step advances by 11 tokens instead of 4 in twice the time, by 4 by 7."""
    rows = Rows(times=TIMES | {WIDE: 2.0})
    found = np.array([rows.step([0, accepted, 0, 0]) for _ in range(200)])
    assert (found == found[:, :1]).all()
    assert (found[10:] == 7).mean() == 1 if is_used else (found[10:] == 7).mean() < 0.03


def test_rows_that_gained_too_little_are_tried_again():
    """Passes with drafts take 1.4 times as long, and for a while they yield 1.2 tokens: less than they cost."""
    rows = Rows(num_rows=1, times=TIMES | {WIDE: 1.4})
    found = [rows.step([int(i % 5 == 0) if i < 200 else 5])[0] > 0 for i in range(400)]
    assert 0 < sum(found[30:200]) < 30
    assert all(found[300:])


def test_a_row_that_was_never_tried_is_tried_in_one_pass():
    """And not again before its result is known, though the next step is planned before."""
    rows = Rows()
    first = rows.choose()
    assert first is not None
    assert first.is_trial
    assert rows.choose() is None
    rows = Rows()
    rows.step([3] * 4)
    second = rows.choose()
    assert second is not None
    assert not second.is_trial


@pytest.mark.parametrize("accepted", [5, 0])
def test_a_new_sequence_is_taken_to_be_like_those_before(accepted):
    """In a slot of one that gained it drafts at once, and else in trials; soon its own drafts count."""
    rows = Rows(num_rows=1, times=TIMES | {WIDE: 1.4})
    for _ in range(60):
        rows.step([accepted])
    rows.table.epoch[0] += 1
    assert rows.step([0]) == [7 if accepted else 0]
    assert sum(rows.step([0])[0] > 0 for _ in range(40)) < 10
    assert sum(rows.step([5])[0] > 0 for _ in range(100)) > 60


def test_rows_that_the_host_must_see_do_not_draft():
    rows = Rows()
    rows.may_draft[2] = False
    assert rows.step([3] * 4) == [7, 7, 0, 7]


@pytest.mark.parametrize(("seconds", "is_used"), [(2.0, True), (5.0, False)])
def test_nobody_drafts_where_passes_with_drafts_take_too_long(seconds, is_used):
    """Rows advance by three tokens a pass."""
    rows = Rows(times=TIMES | {WIDE: seconds})
    for _ in range(12):
        found = rows.step([2] * 4)
    assert any(found) == is_used


@pytest.mark.parametrize(
    ("narrow_s", "wide_s", "accepted", "most"),
    [
        (1.1, 1.2, 7, 7),
        (1.1, 3.0, 2, 3),  # 3 tokens in 1.1 s rather than in 3
        (2.0, 3.0, 7, 7),  # 8 tokens in 3 s rather than 4 in 2
        (2.0, 2.1, 0, 0),
        (3.5, 6.0, 2, 0),
    ],
)
def test_the_bucket_with_the_most_gain_is_used(narrow_s, wide_s, accepted, most):
    rows = Rows(times={DECODE: 1.0, NARROW: narrow_s, WIDE: wide_s}, verify=(NARROW, WIDE))
    found = [rows.step([accepted] * 4) for _ in range(60)]
    usual = max(found, key=found.count)
    assert usual == [most] * 4


def test_trees_accept_as_many_drafts_as_one_branch_has(monkeypatch):
    """Three drafts in three branches advance a row by two tokens at most: it goes by that, whatever was earned."""
    monkeypatch.setattr(earned_passes, "MOST_EARNED", 0.0)

    def passes_with_drafts(seconds, depth):
        rows = Rows(times=TIMES | {NARROW: seconds}, verify=(NARROW,), depth=depth)
        return sum(any(rows.step([1] * 4)) for _ in range(60))

    assert passes_with_drafts(1.95, depth=1) < 10
    assert passes_with_drafts(1.5, depth=1) == 60
    # In a chain, one accepted of three shows that half of those that are tried are right.
    assert passes_with_drafts(1.85, depth=1) == 60
    assert passes_with_drafts(1.85, depth=3) < 10


def passes_with_less_gain(num_good: int) -> int:
    """After so many passes in which all drafts were accepted: of 100 by two tokens in the time of 2.1, how many had
    drafts. To begin, rows need 2.2."""
    rows = Rows(times=TIMES | {WIDE: 2.1})
    for _ in range(num_good):
        rows.step([7] * 4)
    return sum(any(rows.step([1] * 4)) for _ in range(100))


def test_rows_go_on_with_less_gain_as_long_as_they_have_earned_it(monkeypatch):
    lost = 2.1 + earned_passes.UPKEEP - 2
    expected = earned_passes.MOST_EARNED / lost
    assert expected - 2 <= passes_with_less_gain(20) <= expected + 8
    assert passes_with_less_gain(0) < expected / 2
    monkeypatch.setattr(earned_passes.EarnedPasses, "observe", lambda self, *_: setattr(self, "count", 1.0))
    assert passes_with_less_gain(20) == 100, "the control: nothing is spent"


def test_new_sequences_have_earned_nothing():
    rows = Rows(times=TIMES | {WIDE: 2.1})
    for _ in range(20):
        rows.step([7] * 4)
    rows.table.epoch = rows.table.epoch + 1
    rows.choose()
    assert rows.speculation._earned.count == 0


def test_rows_that_end_early_had_fewer_passes():
    """Of four rounds: one ends in its first by eight tokens, one in its second, and one has all."""
    accepted = np.array([[7, 0, 0, 0], [1, 2, 0, 0], [0, 0, 0, 0]])
    found = speculation._passes_of_rows(DraftCounts(accepted, accepted), np.array([8, 5, 4]))
    assert found.tolist() == [1, 2, 4]


def test_decoding_is_measured_first():
    rows = Rows()
    rows.speculation = Speculation(4)
    for _ in range(3):
        assert not any(rows.step([2] * 4))
    assert rows.step([2] * 4) == [7] * 4


def test_a_decode_bucket_of_another_size_is_measured_too():
    rows = Rows()
    for _ in range(3):
        rows.step([2] * 4)
    two = rows.slots[:2], rows.may_draft[:2], Bucket(2, 2, 8), (WIDE,)
    assert rows.speculation.choose(99, rows.table, *two) is None
    assert rows.choose() is not None


def test_a_step_is_compared_with_the_decode_bucket_that_it_was_planned_instead_of():
    """The next step is planned before, and may have another number of rows."""
    rows, other = Rows(times=TIMES | {WIDE: 3.0}), Bucket(2, 2, 8)
    for _ in range(3):
        rows.observe(rows.plan(other, np.zeros(4, np.int32)), StepOutcome(0, 1, *np.zeros((3, 1))), 0.1)
    for _ in range(2):  # the first may have compiled its bucket
        drafts = rows.choose()
        planned = rows.plan(WIDE, drafts.max_drafts)
        rows.choose(decode=other)
        none, zeros = np.zeros((4, 1), int), np.zeros((4, 1))
        rows.observe(planned, StepOutcome(0, 1, np.ones(4, int), zeros, zeros, drafts=DraftCounts(none, none)), 3.0)
        rows.speculation._since_trial[:] = 1000
        rows.speculation._acceptance.forget(rows.slots)
    assert rows.speculation._times.slowdowns(DECODE, [WIDE]) == [3.0]
    assert rows.speculation._times.slowdowns(other, [WIDE]) == [1.0]
    assert len(rows.speculation._options) <= 3


READ_S = 0.15  # of a pass of a draft model: with three drafts, a pass of which reads four tokens


def rows_of_a_draft_model() -> Rows:
    return Rows(times={DECODE: 1.0, NARROW: 1 + 3 * READ_S}, verify=(NARROW,), read_s=READ_S)


def test_what_a_draft_model_catches_up_on_does_not_lengthen_the_pause():
    """Of rows whose drafts are not accepted: two passes in turns with a pause that stays as it is. In addition
    the draft model takes the time of a pass for every four tokens."""
    rows = rows_of_a_draft_model()
    found = np.array([rows.step([0] * 4)[0] > 0 for _ in range(2000)])
    firsts = np.flatnonzero(found[1:] & ~found[:-1])[2:]
    assert found.sum() == pytest.approx(2 * (len(firsts) + 2), abs=2)
    pause = 2 * 3 * READ_S / TRIAL_SHARE
    assert set(np.diff(firsts).tolist()) == {int(pause) + 2}
    assert sum(rows.seconds[firsts[0] :]) <= (1 + TRIAL_SHARE + READ_S / 4) * len(rows.seconds[firsts[0] :])


def test_drafts_of_a_draft_model_that_pay_come_back():
    """After a long time in which they did not, within one pause."""
    rows = rows_of_a_draft_model()
    for _ in range(2000):
        rows.step([0] * 4)
    found = [rows.step([3] * 4)[0] > 0 for _ in range(200)]
    assert all(found[int(2 * 3 * READ_S / TRIAL_SHARE) + 2 :])
    assert rows.speculation._times.slowdowns(DECODE, [NARROW]) == [1 + 3 * READ_S]
