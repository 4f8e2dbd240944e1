"""Of two proposers each row has the one by which it gains, and little is lost against knowing it before."""

from types import SimpleNamespace

import numpy as np
import pytest

from jaxserve.core.buckets import Bucket
from jaxserve.core.step_outcome import DraftCounts, StepOutcome
from jaxserve.scheduler.speculation import Speculation

DECODE, VERIFY = Bucket(4, 4, 8), Bucket(24, 4, 8, max_drafts=5)
SECONDS = {None: 1.0, 0: 1.05, 1: 1.4}
"""Of a pass without drafts, and of one in which proposers up to a number run."""


class Run:
    """acceptance[p][r]: of row r by proposer p. chosen: how often each row had each proposer, and none."""

    def __init__(self, acceptance, *, seconds=SECONDS, seed=0):
        self.acceptance, self.seconds = np.array(acceptance), seconds
        self.num_rows = self.acceptance.shape[1]
        self.slots, self.random = np.arange(self.num_rows), np.random.default_rng(seed)
        self.speculation = Speculation(self.num_rows, [int, int])
        self.table = SimpleNamespace(epoch=np.zeros(self.num_rows, np.int32))
        self.num_tokens, self.time, self.chosen = 0, 0.0, np.zeros((3, self.num_rows), int)
        for seconds_of_step in (1000.0, 1.0, 1000.0):  # the first step may have compiled its bucket, the last the next
            self._observe(DECODE, None, np.zeros(self.num_rows, int), seconds_of_step)

    def step(self, static: int | None = -1) -> None:
        """static: the proposer of all rows, None: no drafts; by default it is chosen."""
        may_draft = np.ones(self.num_rows, bool)
        plan = self.speculation.choose(self.table, self.slots, may_draft, DECODE, (VERIFY,)) if static == -1 else None
        if static != -1 and static is not None:
            most, proposers = np.full(self.num_rows, 5), np.full(self.num_rows, static)
        elif plan is not None:
            most, proposers = plan.max_drafts, plan.proposers
        else:
            most = proposers = np.zeros(self.num_rows, int)
        rates = self.acceptance[proposers, self.slots]
        accepted = np.minimum(self.random.geometric(1 - np.minimum(rates, 1 - 1e-9)) - 1, most)
        has_drafts = bool(most.any())
        slowest = int(proposers[most > 0].max()) if has_drafts else None
        self.num_tokens += int((1 + accepted).sum())
        self.time += self.seconds[slowest]
        for row in self.slots:
            self.chosen[proposers[row] if most[row] else 2, row] += 1
        if static == -1:
            counts = DraftCounts(most[:, None], accepted[:, None]) if has_drafts else None
            self._observe(VERIFY if has_drafts else DECODE, counts, accepted, self.seconds[slowest], most, proposers)

    def _observe(self, bucket, counts, accepted, seconds, most=None, proposers=None) -> None:
        zeros = np.zeros(self.num_rows, np.int32)
        plan = SimpleNamespace(
            bucket=bucket,
            late_rows=(),
            slots=self.slots,
            epochs=self.table.epoch.copy(),
            max_drafts=zeros if most is None else most,
            proposers=zeros if proposers is None else proposers,
            samples=np.ones(self.num_rows, bool),
        )
        columns = np.zeros((self.num_rows, 1))
        self.speculation.observe(plan, StepOutcome(0, 1, 1 + accepted, columns, columns, drafts=counts), seconds)

    @property
    def rate(self) -> float:
        return self.num_tokens / self.time


@pytest.mark.parametrize(
    ("acceptance", "expected"),
    [
        ([[0.9] * 4, [0.6] * 4], [0] * 4),
        ([[0.0] * 4, [0.8] * 4], [1] * 4),
        ([[0.9, 0.0, 0.9, 0.0], [0.7, 0.9, 0.7, 0.9]], [0, 1, 0, 1]),
        ([[0.0] * 4, [0.1] * 4], [2] * 4),
    ],
)
def test_each_row_has_the_proposer_by_which_it_gains(acceptance, expected):
    run = Run(acceptance)
    for _ in range(400):
        run.step()
    assert run.chosen.argmax(axis=0).tolist() == expected
    assert (run.chosen.max(axis=0) > 300).all()


@pytest.mark.parametrize("seed", range(3))
def test_regret_against_the_best_static_choice_is_small(seed):
    """In 10 random mixtures of rows: at most 5 % on average; a choice that never tries loses more."""
    random, regrets, naive = np.random.default_rng(seed), list[float](), list[float]()
    for trace in range(10):
        acceptance = random.choice([0.0, 0.3, 0.6, 0.8, 0.95], (2, 4))
        rates = list[float]()
        for static in (None, 0, 1):
            fixed = Run(acceptance, seed=trace)
            for _ in range(1000):
                fixed.step(static)
            rates.append(fixed.rate)
        run = Run(acceptance, seed=trace)
        for _ in range(1000):
            run.step()
        regrets.append(1 - run.rate / max(rates))
        naive.append(1 - rates[0] / max(rates))
    assert np.mean(regrets) <= 0.05
    assert max(regrets) <= 0.15
    assert np.mean(naive) > 0.2


def test_the_slower_proposer_is_not_used_for_one_row_of_many():
    """One row in four gains by it, at the cost of all others."""
    run = Run([[0.9, 0.9, 0.9, 0.0], [0.0, 0.0, 0.0, 0.6]], seconds=SECONDS | {1: 3.0})
    for _ in range(400):
        run.step()
    assert (run.chosen[0, :3] > 300).all()
    assert run.chosen[1].max() < 20
