"""Host: `FakeRunner`, a `StepRunner` without a device that verifies paging on every row.

A row draws only if its pages hold its own prefix at all positions that it sees, and if its slot is at the position that
the plan assumes; otherwise it raises `PagingError`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from jaxserve.core.device_ops import (
    AdapterLoad,
    CachedPrefix,
    DeviceOp,
    EarlierTokens,
    Forks,
    MaskUpload,
    PageDrops,
    PageLoad,
    PageSave,
    SlotEdits,
)
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.row_layout import POOLING, SAMPLING_INDEX
from jaxserve.core.step_outcome import DraftCounts, StepOutcome, TopLogprobs
from jaxserve.core.step_plan import LateDraw, StepPlan
from jaxserve.runner.fake.fake_model import EMPTY_PREFIX, FakeModel, extend_prefix, mix
from jaxserve.runner.fake.fake_pool import FakePool, PagingError

Scored = tuple[int, int]  # a prefix, and the token after it whose log-probability is requested


@dataclass(slots=True)
class DrawnRow:
    """tokens: None for bad logits. scored: one entry for each. drafts: by round how many, and accepted ones."""

    tokens: list[int | None] = field(default_factory=list[int | None])
    scored: list[Scored] = field(default_factory=list[Scored])
    drafts: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


class FakeRunner:
    """Owns last token, length and edits by slot, like `Runner`; steps run when they are submitted.

    num_slots, num_pages (with the scratch page) and max_model_len as in the scheduler, or with num_sinks the tokens of
    the longest stream. max_logprobs: candidates in each log-probability entry. num_sinks: as in `FakePool`.
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
        num_sinks: int | None = None,
    ):
        self.model, self.groups, self.max_logprobs = model, groups, max_logprobs
        self.num_computed = 0  # tokens of all rows
        self._pool = FakePool(groups, num_pages, num_sinks)
        self._prefixes = np.zeros((num_slots, max_model_len), np.uint64)  # by position, of the slot's sequence
        self._lengths = [0] * num_slots
        self._last_tokens = [0] * num_slots
        self._epochs = [-1] * num_slots
        self._bases = [EMPTY_PREFIX] * num_slots  # keys of their adapters: what their prefixes begin with
        self._edits: dict[int, SlotEdits] = {}
        self._masks: dict[int, np.ndarray] = {}
        self._in_flight: list[tuple[StepPlan, StepOutcome]] = []
        self._num_submitted = 0
        self._num_undrawn = 0  # late rows of the last step
        self._late_drafts: dict[int, list[int]] = {}  # of those, by row

    def submit(self, plan: StepPlan) -> int:
        """Run the step; the ticket is its id."""
        self._check_plan(plan)
        self._num_submitted += 1
        for op in plan.ops:
            self._make(op)
        self._take_prefixes(plan)
        offsets = np.concatenate([[0], np.cumsum(plan.query_lens)]).tolist()
        starts = [self._read_row(plan, row, offsets[row], offsets[row + 1]) for row in range(plan.num_rows)]
        rows = self._draw_rounds(plan, starts)
        most = max(len(row.tokens) for row in rows)
        outcome = StepOutcome(
            step_id=plan.step_id,
            num_rounds=plan.num_rounds,
            num_tokens=np.array([len(row.tokens) for row in rows], np.int32),
            tokens=np.array([_filled([token or 0 for token in row.tokens], most, 0) for row in rows], np.int32),
            is_bad=np.array([_filled([token is None for token in row.tokens], most, False) for row in rows], bool),
            logprobs=self._row_logprobs(rows, most) if plan.has_logprobs else None,
            prompt_logprobs=self._prompt_logprobs(plan, offsets, starts) if plan.num_targets else None,
            pooled=self._pooled(plan, starts) if plan.has_pooled else None,
            drafts=_draft_counts(rows, plan.num_rounds) if plan.bucket.is_verify else None,
        )
        self._in_flight.append((plan, outcome))
        self._num_undrawn = len(plan.late_rows)
        return plan.step_id

    def late_drafts(self, ticket: int) -> list[list[int]]:
        """Drafts of the last step's late rows: what the model would draw by other masks, or something else."""
        plan, _ = self._in_flight[-1]
        _check(plan.step_id == ticket and self._num_undrawn, f"late rows of step {ticket} are not to be drawn")
        return [self._late_drafts[row] for row in plan.late_rows.tolist()]

    def draw(self, ticket: int, late: LateDraw) -> int:
        """Draw the tokens of the late rows, which the pages of their step were checked for."""
        plan, outcome = self._in_flight[-1]
        _check(
            len(self._in_flight) == 1 and plan.step_id == ticket, "late rows draw while only their step is in flight"
        )
        _check(self._num_undrawn, f"step {ticket} has drawn all of its rows")
        self._num_undrawn = 0
        for op in late.ops:
            self._make(op)
        _check(np.isin(late.rows, plan.late_rows).all(), f"step {ticket} draws rows late that are not")
        if late.drafts is not None:
            outcome = outcome.widened(1 + plan.bucket.max_drafts)
            self._in_flight[-1] = plan, outcome
        for i, row in enumerate(late.rows.tolist()):
            _check(late.slots[i] == plan.slots[row], f"row {row} of step {ticket} draws for another slot")
            drawn = self._draw_late_nodes(plan, late, i)
            outcome.num_tokens[row] = len(drawn.tokens)
            if outcome.drafts is not None:
                outcome.drafts.num_accepted[row, 0] = len(drawn.tokens) - 1
            for m, (token, scored) in enumerate(zip(drawn.tokens, drawn.scored, strict=True)):
                outcome.tokens[row, m], outcome.is_bad[row, m] = token or 0, token is None
                if outcome.logprobs is not None:
                    found, entry = self._logprobs([scored]), row * outcome.tokens.shape[1] + m
                    outcome.logprobs.chosen[entry], outcome.logprobs.top_ids[entry] = found.chosen[0], found.top_ids[0]
                    outcome.logprobs.top[entry] = found.top[0]
        return ticket

    def _draw_late_nodes(self, plan: StepPlan, late: LateDraw, i: int) -> DrawnRow:
        """Draw as long as what was drawn is the next draft of those that may be accepted."""
        row, fields, drawn = int(late.rows[i]), late.sampling[i].copy(), DrawnRow()
        slot, drafts, num = int(plan.slots[row]), self._late_drafts[row], 0
        if late.drafts is not None:
            num = int(late.drafts.num[i])
            _check(num <= len(drafts), f"row {row} of step {plan.step_id} has {len(drafts)} drafts, not {num}")
        for node in range(num + 1):
            if late.drafts is not None:
                fields[SAMPLING_INDEX["mask_row"]] = late.drafts.mask_rows[i, node]
            drawn.tokens.append(self._draw(plan, row, fields))
            drawn.scored.append((self._prefix(slot), drawn.tokens[-1] or 0))
            if node == num or drawn.tokens[-1] != drafts[node]:
                break
            self._extend(slot, drafts[node : node + 1])
        return drawn

    def _make(self, op: DeviceOp) -> None:
        match op:
            case PageDrops():
                self._pool.copy_sinks(op)
            case PageSave() | PageLoad():
                self._pool.transfer(op)
            case AdapterLoad():
                self._pool.load_adapter(op)
            case Forks():
                self._pool.copy(op.src_pages, op.dst_pages)
                self._prefixes[op.dst_slots] = self._prefixes[op.src_slots]
            case SlotEdits():
                self._edits[op.slot] = op
            case MaskUpload():
                self._masks[op.row] = op.words
            case CachedPrefix() | EarlierTokens():
                pass  # counts and histories are those of the prefixes; drafts are random

    def has_run(self, ticket: int) -> bool:
        """Steps run when they are submitted."""
        return True

    def collect(self, ticket: int) -> StepOutcome:
        plan, outcome = self._in_flight.pop(0)
        _check(plan.step_id == ticket, f"step {plan.step_id} must be collected before step {ticket}")
        _check(not len(plan.late_rows) or not self._num_undrawn or self._in_flight, "late rows have not been drawn")
        return outcome

    def _check_plan(self, plan: StepPlan) -> None:
        bucket = plan.bucket
        _check(plan.step_id == self._num_submitted, f"step {plan.step_id} is not the next one")
        _check(len(self._in_flight) < 2, "two steps are in flight already")
        _check(not self._num_undrawn, "late rows of the step before have not been drawn")
        _check(len(set(plan.slots.tolist())) == plan.num_rows, "a slot has two rows")
        _check(plan.num_rows <= bucket.num_rows and plan.num_tokens <= bucket.num_tokens, f"{bucket} is too small")
        is_long = plan.query_lens > 1
        _check(not is_long[: plan.num_decodes].any() and is_long[plan.num_decodes :].all(), "rows are out of order")
        is_plain = not is_long.any() and plan.targets is None and not plan.has_pooled
        _check(not bucket.only_decodes or is_plain, f"{bucket} is for decoding only")
        _check((plan.max_drafts <= bucket.max_drafts).all(), f"{bucket} has too few drafts")
        for g, table in enumerate(plan.tables):
            width = self.groups.num_columns(g, bucket.num_columns, bucket.max_row_span)
            _check(table.shape[1] <= width, f"group {g}: {table.shape[1]} table columns, {bucket} holds {width}")

    def _draw_rounds(self, plan: StepPlan, first_starts: list[int]) -> list[DrawnRow]:
        """What each row draws in all its rounds.

        Unlike on a device, a row does not end before it has drawn all its planned tokens: the pages must hold all
        planned positions.
        """
        drawn = [DrawnRow() for _ in first_starts]
        starts, self._late_drafts = dict(enumerate(first_starts)), {}
        for count in range(plan.num_rounds):
            rows = [row for row in starts if len(drawn[row].tokens) < plan.max_tokens[row]]
            if count:
                starts = {row: self._extend(int(plan.slots[row]), [-1]) for row in rows}
            room = {row: int(plan.max_tokens[row]) - len(drawn[row].tokens) for row in rows}
            nodes = {row: self._draw_nodes(plan, row, room[row]) for row in rows if row not in plan.late_rows}
            late = {row: self._draft_late(plan, row, room[row]) for row in rows if row in plan.late_rows}
            # All rows write before any is checked, so a page wrongly shared by two rows is detected.
            seen = {row: self._pool.write(plan, row, starts[row], self._written(plan, row)) for row in rows}
            for row in rows:
                self._pool.check(plan, row, seen[row])
                _check(self._pool.adapter(plan, row) == self._bases[int(plan.slots[row])], "a row's adapter changes")
            for row in rows:
                if (drafts := late.get(row)) is not None:
                    self._lengths[int(plan.slots[row])] -= len(drafts)
                    drawn[row] = DrawnRow([0], [(EMPTY_PREFIX, 0)], [(len(drafts), 0)])
                    continue
                self._accept(int(plan.slots[row]), drawn[row], *nodes[row])
            self._late_drafts |= late
        return drawn

    def _draw_nodes(self, plan: StepPlan, row: int, room: int) -> tuple[list[int | None], list[int], list[Scored]]:
        """(drawn tokens, drafts, scored): a token after the row's last one, and after each of its drafts.

        Drafts are what the model draws, or something else, by chance.
        """
        slot, drawn, drafts, scored = int(plan.slots[row]), list[int | None](), list[int](), list[Scored]()
        num_drafts = min(int(plan.max_drafts[row]), room - 1)
        if num_drafts:
            num_drafts = mix(self._prefix(slot)) % (num_drafts + 1)
        for i in range(num_drafts + 1):
            drawn.append(self._draw(plan, row, plan.sampling[row]))
            scored.append((self._prefix(slot), drawn[-1] or 0))
            if i < num_drafts:
                is_right = drawn[-1] is not None and mix(self._prefix(slot) ^ i) % 4 > 0
                drafts.append((drawn[-1] or 0) if is_right else (drawn[-1] or 0) + 1)
                self._extend(slot, drafts[-1:])
        return drawn, drafts, scored

    def _draft_late(self, plan: StepPlan, row: int, room: int) -> list[int]:
        """Drafts of a late row, appended to its slot: drawn by the mask of the token before, or by none."""
        slot, drafts, fields = int(plan.slots[row]), list[int](), plan.sampling[row].copy()
        if mix(self._prefix(slot)) % 8 > 3:
            fields[SAMPLING_INDEX["mask_row"]] = 0
        num_drafts = min(int(plan.max_drafts[row]), room - 1)
        for i in range(mix(self._prefix(slot)) % (num_drafts + 1) if num_drafts else 0):
            token = self._draw(plan, row, fields) or 0
            drafts.append(token if mix(self._prefix(slot) ^ i) % 4 > 0 else token + 1)
            self._extend(slot, drafts[-1:])
        return drafts

    def _accept(
        self, slot: int, row: DrawnRow, drawn: list[int | None], drafts: list[int], scored: list[Scored]
    ) -> None:
        """Advance a row by the drafts that are what was drawn, and roll its slot back to the last of these."""
        num_accepted = next((i for i, draft in enumerate(drafts) if drawn[i] != draft), len(drafts))
        self._lengths[slot] -= len(drafts) - num_accepted
        self._last_tokens[slot] = drawn[num_accepted] or 0
        row.tokens += drawn[: num_accepted + 1]
        row.scored += scored[: num_accepted + 1]
        row.drafts.append((len(drafts), num_accepted))

    def _take_prefixes(self, plan: StepPlan) -> None:
        """Read from the pool the prefixes that new sequences reuse; forks have them from their source's slot."""
        forked: list[int] = [slot for forks in plan.ops_of(Forks) for slot in forks.dst_slots.tolist()]
        for row in np.flatnonzero((plan.starts > 0) & ~np.isin(plan.slots, forked)).tolist():
            slot, start = int(plan.slots[row]), int(plan.starts[row])
            if plan.epochs[row] != self._epochs[slot]:
                self._pool.read(plan, row, self._prefixes[slot, :start])

    def _read_row(self, plan: StepPlan, row: int, offset: int, end_offset: int) -> int:
        """Append the row's tokens to its slot; returns the position of the first."""
        slot, start = int(plan.slots[row]), int(plan.starts[row])
        if plan.epochs[row] != self._epochs[slot]:
            _check(start >= 0, f"slot {slot}: a new sequence begins at {start}")
            self._epochs[slot], self._bases[slot] = int(plan.epochs[row]), self._pool.adapter(plan, row)
        else:
            _check(start in (-1, self._lengths[slot]), f"slot {slot} is {self._lengths[slot]} long, the row at {start}")
            start = self._lengths[slot]
        self._lengths[slot] = start
        return self._extend(slot, plan.tokens[offset:end_offset].tolist())

    def _extend(self, slot: int, tokens: list[int]) -> int:
        """Append tokens to a slot, -1: the token it drew last; returns the position of the first."""
        start = self._lengths[slot]
        prefix = int(self._prefixes[slot, start - 1]) if start else self._bases[slot]
        for i, token in enumerate(tokens):
            prefix = extend_prefix(prefix, self._last_tokens[slot] if token < 0 else token)
            self._prefixes[slot, start + i] = prefix
        self._lengths[slot] += len(tokens)
        self.num_computed += len(tokens)
        return start

    def _draw(self, plan: StepPlan, row: int, fields: np.ndarray) -> int | None:
        """The row's token by its sampling fields, None for bad logits; 0 if the row does not sample."""
        if not plan.samples[row]:
            return 0
        slot = int(plan.slots[row])
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

    def _row_logprobs(self, rows: list[DrawnRow], most: int) -> TopLogprobs:
        return self._logprobs([entry for row in rows for entry in _filled(row.scored, most, (EMPTY_PREFIX, 0))])

    def _logprobs(self, scored: list[Scored]) -> TopLogprobs:
        """For each (prefix, token) the token's log-probability, and the likeliest ids, the lowest ids among equals."""
        chosen = np.array([self.model.logprob(prefix, token) for prefix, token in scored], np.float32)
        logprobs = np.array([self.model.logprobs(prefix) for prefix, _ in scored], np.float32)
        top_ids = np.argsort(-logprobs, axis=1, kind="stable")[:, : self.max_logprobs]
        top = np.take_along_axis(logprobs, top_ids, axis=1)
        return TopLogprobs(chosen, np.ones(len(scored), np.int32), top_ids.astype(np.int32), top)


def _filled[T](values: list[T], size: int, value: T) -> list[T]:
    return values + [value] * (size - len(values))


def _draft_counts(rows: list[DrawnRow], num_rounds: int) -> DraftCounts:
    table = np.array([_filled(row.drafts, num_rounds, (0, 0)) for row in rows], np.int32)
    return DraftCounts(table[:, :, 0], table[:, :, 1])


def _check(condition: object, message: str) -> None:
    if not condition:
        raise PagingError(message)
