"""Host: `FakeRunner`, a `StepRunner` without a device that verifies paging on every row.

A row draws only if its pages hold its own prefix at all positions that it sees, and if its slot is at the position that
the plan assumes; otherwise it raises `PagingError`.
"""

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.row_layout import POOLING, SAMPLING_INDEX
from jaxserve.core.step_outcome import StepOutcome, TopLogprobs
from jaxserve.core.step_plan import SlotEdits, StepPlan
from jaxserve.runner.fake.fake_model import EMPTY_PREFIX, FakeModel, extend_prefix
from jaxserve.runner.fake.fake_pool import FakePool, PagingError

Scored = tuple[int, int]  # a prefix, and the token after it whose log-probability is requested


class FakeRunner:
    """Owns last token, length and edits by slot, like `Runner`; steps run when they are submitted.

    num_slots, num_pages (with the scratch page) and max_model_len as in the scheduler. max_logprobs: candidates in each
    log-probability entry.
    """

    def __init__(
        self,
        model: FakeModel,
        groups: KVGroups,
        *,
        num_slots: int,
        num_pages: int,
        max_model_len: int,
        max_logprobs: int = 5,
    ):
        self.model, self.groups, self.max_logprobs = model, groups, max_logprobs
        self.num_computed = 0  # tokens of all rows
        self._pool = FakePool(groups, num_pages)
        self._prefixes = np.zeros((num_slots, max_model_len), np.uint64)  # by position, of the slot's sequence
        self._lengths = [0] * num_slots
        self._last_tokens = [0] * num_slots
        self._epochs = [-1] * num_slots
        self._edits: dict[int, SlotEdits] = {}
        self._masks: dict[int, np.ndarray] = {}
        self._in_flight: list[tuple[int, StepOutcome]] = []
        self._num_submitted = 0

    def submit(self, plan: StepPlan) -> int:
        """Run the step; the ticket is its id."""
        self._check_plan(plan)
        self._num_submitted += 1
        for edits in plan.edits:
            self._edits[edits.slot] = edits
            if edits.mask is not None:
                self._masks[edits.slot + 1] = edits.mask
        self._pool.transfer(plan.transfers)
        self._take_prefixes(plan)
        if plan.forks is not None:
            self._pool.copy(plan.forks.src_pages, plan.forks.dst_pages)
            self._prefixes[plan.forks.dst_slots] = self._prefixes[plan.forks.src_slots]
        offsets = np.concatenate([[0], np.cumsum(plan.query_lens)]).tolist()
        starts = [self._read_row(plan, row, offsets[row], offsets[row + 1]) for row in range(plan.num_rows)]
        drawn, scored = self._draw_rounds(plan, starts)
        outcome = StepOutcome(
            step_id=plan.step_id,
            num_rounds=plan.num_rounds,
            num_tokens=plan.rounds,
            tokens=np.array([[token or 0 for token in row] for row in drawn], np.int32),
            is_bad=np.array([[token is None for token in row] for row in drawn], bool),
            logprobs=self._logprobs(list(chain.from_iterable(scored))) if plan.has_logprobs else None,
            prompt_logprobs=self._prompt_logprobs(plan, offsets, starts) if plan.num_targets else None,
            pooled=self._pooled(plan, starts) if plan.has_pooled else None,
        )
        self._in_flight.append((plan.step_id, outcome))
        return plan.step_id

    def collect(self, ticket: int) -> StepOutcome:
        step_id, outcome = self._in_flight.pop(0)
        _check(step_id == ticket, f"step {step_id} must be collected before step {ticket}")
        return outcome

    def _check_plan(self, plan: StepPlan) -> None:
        bucket = plan.bucket
        _check(plan.step_id == self._num_submitted, f"step {plan.step_id} is not the next one")
        _check(len(self._in_flight) < 2, "two steps are in flight already")
        _check(len(set(plan.slots.tolist())) == plan.num_rows, "a slot has two rows")
        _check(plan.num_rows <= bucket.num_rows and plan.num_tokens <= bucket.num_tokens, f"{bucket} is too small")
        is_long = plan.query_lens > 1
        _check(not is_long[: plan.num_decodes].any() and is_long[plan.num_decodes :].all(), "rows are out of order")
        is_plain = not is_long.any() and plan.targets is None and not plan.has_pooled
        _check(not bucket.is_decode or is_plain, f"{bucket} is for decoding only")
        for g, table in enumerate(plan.tables):
            width = self.groups.num_columns(g, bucket.num_columns, bucket.max_row_tokens)
            _check(table.shape[1] <= width, f"group {g}: {table.shape[1]} table columns, {bucket} holds {width}")

    def _draw_rounds(
        self, plan: StepPlan, first_starts: list[int]
    ) -> tuple[list[list[int | None]], list[list[Scored]]]:
        """By row and decode round: the token, None for bad logits, and (prefix, token).

        Unlike on a device, every row runs all its planned rounds: the pages must hold all planned positions.
        """
        starts = dict(enumerate(first_starts))
        drawn: list[list[int | None]] = [[0] * plan.num_rounds for _ in starts]
        scored = [list[Scored]([(EMPTY_PREFIX, 0)]) * plan.num_rounds for _ in starts]
        for count in range(plan.num_rounds):
            rows = np.flatnonzero(plan.rounds > count).tolist()
            if count:
                starts = {row: self._extend(int(plan.slots[row]), [-1]) for row in rows}
            # All rows write before any is checked, so a page wrongly shared by two rows is detected.
            seen = {row: self._pool.write(plan, row, starts[row], self._written(plan, row)) for row in rows}
            for row in rows:
                self._pool.check(plan, row, seen[row])
            for row in rows:
                token = self._draw(plan, row)
                drawn[row][count], scored[row][count] = token, (self._prefix(plan.slots[row]), token or 0)
        return drawn, scored

    def _take_prefixes(self, plan: StepPlan) -> None:
        """Read from the pool the prefixes that new sequences reuse; forks have them from their source's slot."""
        forked: Any = [] if plan.forks is None else plan.forks.dst_slots
        for row in np.flatnonzero((plan.starts > 0) & ~np.isin(plan.slots, forked)).tolist():
            slot, start = int(plan.slots[row]), int(plan.starts[row])
            if plan.epochs[row] != self._epochs[slot]:
                self._pool.read(plan, row, self._prefixes[slot, :start])

    def _read_row(self, plan: StepPlan, row: int, offset: int, end_offset: int) -> int:
        """Append the row's tokens to its slot; returns the position of the first."""
        slot, start = int(plan.slots[row]), int(plan.starts[row])
        if plan.epochs[row] != self._epochs[slot]:
            _check(start >= 0, f"slot {slot}: a new sequence begins at {start}")
            self._epochs[slot] = int(plan.epochs[row])
        else:
            _check(start in (-1, self._lengths[slot]), f"slot {slot} is {self._lengths[slot]} long, the row at {start}")
            start = self._lengths[slot]
        self._lengths[slot] = start
        return self._extend(slot, plan.tokens[offset:end_offset].tolist())

    def _extend(self, slot: int, tokens: list[int]) -> int:
        """Append tokens to a slot, -1: the token it drew last; returns the position of the first."""
        start = self._lengths[slot]
        prefix = int(self._prefixes[slot, start - 1]) if start else EMPTY_PREFIX
        for i, token in enumerate(tokens):
            prefix = extend_prefix(prefix, self._last_tokens[slot] if token < 0 else token)
            self._prefixes[slot, start + i] = prefix
        self._lengths[slot] += len(tokens)
        self.num_computed += len(tokens)
        return start

    def _draw(self, plan: StepPlan, row: int) -> int | None:
        """The row's token, None for bad logits; 0 if the row does not sample."""
        if not plan.samples[row]:
            return 0
        slot, fields = int(plan.slots[row]), plan.sampling[row]
        words = fields[[SAMPLING_INDEX["seed_low"], SAMPLING_INDEX["seed_high"]]].view(np.uint32).tolist()
        position = self._lengths[slot]
        token = self.model.draw(
            self._prefix(slot),
            words[0] | words[1] << 32,
            int(fields[SAMPLING_INDEX["sample_index"]]),
            position,
            self._allowed(slot, fields, position),
        )
        self._last_tokens[slot] = 0 if token is None else token
        return token

    def _allowed(self, slot: int, fields: np.ndarray, position: int) -> Callable[[int], bool]:
        banned: set[int] = set()
        if fields[SAMPLING_INDEX["has_edits"]]:
            edits = self._edits[slot]
            banned.update(edits.ids[np.isneginf(edits.bias) & (position < edits.until)].tolist())
        mask_row = int(fields[SAMPLING_INDEX["mask_row"]])
        mask = self._masks[mask_row] if mask_row else None
        return lambda token: token not in banned and (mask is None or bool(mask[token // 32] >> (token % 32) & 1))

    def _written(self, plan: StepPlan, row: int) -> np.ndarray:
        """The prefixes of all positions of the row's sequence, including the row's tokens."""
        slot = plan.slots[row]
        return self._prefixes[slot, : self._lengths[slot]]

    def _prefix(self, slot: int) -> int:
        return int(self._prefixes[slot, self._lengths[slot] - 1])

    def _prompt_logprobs(self, plan: StepPlan, offsets: list[int], starts: list[int]) -> TopLogprobs:
        assert plan.targets is not None
        scored: list[Scored] = []
        for row, start in enumerate(starts):
            targets = plan.targets[offsets[row] : offsets[row + 1]].tolist()
            prefixes = self._prefixes[plan.slots[row], start : start + len(targets)].tolist()
            scored += [(prefix, target) for prefix, target in zip(prefixes, targets, strict=True) if target >= 0]
        return self._logprobs(scored)

    def _pooled(self, plan: StepPlan, starts: list[int]) -> np.ndarray:
        """[S, 1]: the sum of the hidden states of the row's tokens, or the last one."""
        pooled: list[list[float]] = []
        modes = plan.sampling[:, SAMPLING_INDEX["pooling"]].tolist()
        for slot, start, mode in zip(plan.slots, starts, modes, strict=True):
            states = [
                self.model.hidden(prefix) for prefix in self._prefixes[slot, start : self._lengths[slot]].tolist()
            ]
            pooled.append([sum(states) if mode == POOLING["mean"] else states[-1]])
        return np.array(pooled, np.float32)

    def _logprobs(self, scored: list[Scored]) -> TopLogprobs:
        """For each (prefix, token) the token's log-probability, and the likeliest ids, the lowest ids among equals."""
        chosen = np.array([self.model.logprob(prefix, token) for prefix, token in scored], np.float32)
        logprobs = np.array([self.model.logprobs(prefix) for prefix, _ in scored], np.float32)
        top_ids = np.argsort(-logprobs, axis=1, kind="stable")[:, : self.max_logprobs]
        top = np.take_along_axis(logprobs, top_ids, axis=1)
        return TopLogprobs(chosen, np.ones(len(scored), np.int32), top_ids.astype(np.int32), top)


def _check(condition: object, message: str) -> None:
    if not condition:
        raise PagingError(message)
