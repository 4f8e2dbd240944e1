"""The choice among two proposers, step by step against a clock; rates or records say which drafts are accepted."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Protocol

import numpy as np

from jaxserve.core.buckets import Bucket
from jaxserve.core.step_outcome import DraftCounts, StepOutcome
from jaxserve.scheduler.speculation import Speculation

Static = tuple[int, int] | None
"""The proposer of all rows and their drafts in a pass; None: no drafts."""


class Acceptance(Protocol):
    """num_rows: rows. epoch: int32[rows], the number of the text that each has."""

    num_rows: int
    epoch: np.ndarray

    def advance(self, proposers: np.ndarray, most: np.ndarray) -> np.ndarray:
        """int[rows]: drafts that are accepted in the next pass, by the proposer of each row and its most drafts."""
        ...


class Rates:
    """rates[p][r]: of row r by proposer p, how often a draft is accepted if those before it are; one endless text."""

    def __init__(self, rates, seed: int = 0):
        self._rates, self._random = np.array(rates), np.random.default_rng(seed)
        self.num_rows = self._rates.shape[1]
        self.epoch = np.zeros(self.num_rows, np.int32)

    def advance(self, proposers: np.ndarray, most: np.ndarray) -> np.ndarray:
        """See `Acceptance`."""
        rates = self._rates[proposers, np.arange(self.num_rows)]
        return np.minimum(self._random.geometric(1 - np.minimum(rates, 1 - 1e-9)) - 1, most)


class Records:
    """accepted[p][text][i]: drafts of proposer p that are accepted after token i. A row has every num_rows-th text, and
    begins again after the last. random: rows begin anywhere in a text; None: all at its first token."""

    def __init__(self, accepted, num_rows: int, random: np.random.Generator | None = None):
        self._accepted, self.num_rows = np.array(accepted), num_rows
        self.epoch, self._place = np.zeros(num_rows, np.int32), np.zeros(num_rows, int)
        if random is not None:
            self._place = random.integers(0, self._accepted.shape[2], num_rows)

    def advance(self, proposers: np.ndarray, most: np.ndarray) -> np.ndarray:
        """See `Acceptance`."""
        _, num_texts, text_len = self._accepted.shape
        text = (np.arange(self.num_rows) + self.epoch * self.num_rows) % num_texts
        accepted = np.minimum(self._accepted[proposers, text, self._place], most)
        self._place += 1 + accepted
        self.epoch += self._place >= text_len
        self._place[self._place >= text_len] = 0
        return accepted


class Replay:
    """seconds: of a pass without drafts (None), and of one in which proposers up to a number run, by that number and
    the drafts of a row. read_s: of a pass in which the second proposer, a draft model, catches up; None: it is of
    another kind. chosen: how often each row had each proposer, and none."""

    def __init__(self, acceptance: Acceptance, seconds: Mapping[Static, float], read_s: float | None = None):
        num_rows = acceptance.num_rows
        self.acceptance, self.seconds, self.slots = acceptance, seconds, np.arange(num_rows)
        self.decode = Bucket(num_rows, num_rows, 8)
        widths = sorted({static[1] for static in seconds if static is not None})
        self.verify = {n: Bucket((1 + n) * num_rows, num_rows, 8, max_drafts=n) for n in widths}
        self.speculation = Speculation(num_rows, [int, int], [False, read_s is not None])
        self.step_id, self.read_s, self.unread = 0, read_s or 0.0, np.zeros(num_rows, int)
        self.num_tokens, self.time, self.chosen = 0, 0.0, np.zeros((3, num_rows), int)
        none = np.zeros(num_rows, np.int32)
        for seconds_of_step in (
            1000.0,
            seconds[None],
            1000.0,
        ):  # the first may have compiled its bucket, the last others
            self._observe(self.decode, None, none, seconds_of_step, none, none)

    def step(self) -> None:
        """As the engine chooses."""
        may_draft, table = np.ones(len(self.slots), bool), SimpleNamespace(epoch=self.acceptance.epoch)
        self.step_id += 1
        verify = tuple(self.verify.values())
        plan = self.speculation.choose(self.step_id, table, self.slots, may_draft, self.decode, verify)
        epochs = self.acceptance.epoch.copy()
        if plan is None:
            none = np.zeros(len(self.slots), np.int32)
            accepted, seconds = self._pass(none, none, None)
            self._observe(self.decode, None, accepted, seconds, none, none, epochs)
            return
        most, proposers = plan.max_drafts, plan.proposers
        accepted, seconds = self._pass(most, proposers, (int(proposers.max()), plan.bucket.max_drafts))
        counts = DraftCounts(most[:, None], accepted[:, None])
        self._observe(plan.bucket, counts, accepted, seconds, most, proposers, epochs)

    def step_as(self, static: Static) -> None:
        """Without a choice."""
        proposer, num_drafts = static or (0, 0)
        self._pass(np.full(len(self.slots), num_drafts), np.full(len(self.slots), proposer), static)

    def _pass(self, most: np.ndarray, proposers: np.ndarray, static: Static) -> tuple[np.ndarray, float]:
        """Accepted drafts, and the time. static: the proposer of the largest number, and the width."""
        epochs, reads = self.acceptance.epoch.copy(), (most > 0) & (proposers == 1)
        seconds = self.seconds[static]
        if reads.any():
            assert static is not None
            seconds += self.read_s * (self.unread[reads].max() // (1 + static[1]))
        accepted = self.acceptance.advance(proposers, most)
        self.num_tokens += int((1 + accepted).sum())
        self.time += seconds
        self.unread = np.where(reads, accepted, self.unread + 1 + accepted) * (self.acceptance.epoch == epochs)
        for row in self.slots:
            self.chosen[proposers[row] if most[row] else 2, row] += 1
        return accepted, seconds

    def _observe(self, bucket, counts, accepted, seconds, most, proposers, epochs=None) -> None:
        plan = SimpleNamespace(
            step_id=self.step_id,
            bucket=bucket,
            late_rows=(),
            slots=self.slots,
            epochs=self.acceptance.epoch.copy() if epochs is None else epochs,
            max_drafts=most,
            proposers=proposers,
            samples=np.ones(len(self.slots), bool),
            num_computed=lambda num_tokens: num_tokens,
        )
        columns = np.zeros((len(self.slots), 1))
        self.speculation.observe(plan, StepOutcome(0, 1, 1 + accepted, columns, columns, drafts=counts), seconds)

    @property
    def rate(self) -> float:
        """Tokens a second so far."""
        return self.num_tokens / self.time
