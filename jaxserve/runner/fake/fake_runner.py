"""Host: `FakeRunner`, a `StepRunner` without a device that verifies paging on every row.

A row draws only if its pages hold its own prefix at all positions that it sees, and if its slot is at the position that
the plan assumes; otherwise it raises `PagingError`.
"""

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
from jaxserve.core.step_outcome import StepOutcome
from jaxserve.core.step_plan import LateDraw, StepPlan
from jaxserve.runner.fake.fake_drafts import DrawnRow, accept, draft_late, draw_late, draw_nodes
from jaxserve.runner.fake.fake_model import EMPTY_PREFIX, FakeModel
from jaxserve.runner.fake.fake_pool import FakePool, PagingError
from jaxserve.runner.fake.fake_results import (
    bad_logits_of,
    draft_counts,
    logprobs_of,
    pooled,
    prompt_logprobs,
    tokens_of,
    top_logprobs,
)
from jaxserve.runner.fake.fake_slots import FakeSlots


class FakeRunner:
    """Owns pages and slots, like `Runner`; steps run when they are submitted.

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
        self._pool = FakePool(groups, num_pages, num_sinks)
        self._slots = FakeSlots(model, num_slots, max_model_len)
        self._in_flight: list[tuple[StepPlan, StepOutcome]] = []
        self._num_submitted = 0
        self._num_undrawn = 0  # late rows of the last step
        self._late_drafts: dict[int, list[int]] = {}  # of those, by row

    @property
    def num_computed(self) -> int:
        """Tokens of all rows so far."""
        return self._slots.num_computed

    def submit(self, plan: StepPlan) -> int:
        """Run the step; the ticket is its id."""
        self._check_plan(plan)
        self._num_submitted += 1
        for op in plan.ops:
            self._make(op)
        self._take_prefixes(plan)
        starts = self._read_rows(plan)
        rows = self._draw_rounds(plan, starts)
        model, slots, most = self.model, self._slots, self.max_logprobs
        outcome = StepOutcome(
            step_id=plan.step_id,
            num_rounds=plan.num_rounds,
            num_tokens=np.array([len(row.tokens) for row in rows], np.int32),
            tokens=tokens_of(rows),
            is_bad=bad_logits_of(rows),
            logprobs=logprobs_of(model, rows, most) if plan.has_logprobs else None,
            prompt_logprobs=prompt_logprobs(model, slots, plan, starts, most) if plan.num_targets else None,
            pooled=pooled(model, slots, plan, starts) if plan.has_pooled else None,
            drafts=draft_counts(rows, plan.num_rounds) if plan.bucket.is_verify else None,
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
            self._put(outcome, row, draw_late(self._slots, plan, late, i, self._late_drafts[row]))
        return ticket

    def has_run(self, ticket: int) -> bool:
        """Steps run when they are submitted."""
        return True

    def collect(self, ticket: int) -> StepOutcome:
        plan, outcome = self._in_flight.pop(0)
        _check(plan.step_id == ticket, f"step {plan.step_id} must be collected before step {ticket}")
        _check(not len(plan.late_rows) or not self._num_undrawn or self._in_flight, "late rows have not been drawn")
        return outcome

    def _put(self, outcome: StepOutcome, row: int, drawn: DrawnRow) -> None:
        """Put a late row's tokens into the outcome of its step."""
        outcome.num_tokens[row] = len(drawn.tokens)
        if outcome.drafts is not None:
            outcome.drafts.num_accepted[row, 0] = len(drawn.tokens) - 1
        for m, (token, scored) in enumerate(zip(drawn.tokens, drawn.scored, strict=True)):
            outcome.tokens[row, m], outcome.is_bad[row, m] = token or 0, token is None
            if outcome.logprobs is not None:
                found = top_logprobs(self.model, [scored], self.max_logprobs)
                entry = row * outcome.tokens.shape[1] + m
                outcome.logprobs.chosen[entry], outcome.logprobs.top_ids[entry] = found.chosen[0], found.top_ids[0]
                outcome.logprobs.top[entry] = found.top[0]

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
                self._slots.prefixes[op.dst_slots] = self._slots.prefixes[op.src_slots]
            case SlotEdits():
                self._slots.edits[op.slot] = op
            case MaskUpload():
                self._slots.masks[op.row] = op.words
            case CachedPrefix() | EarlierTokens():
                pass  # counts and histories are those of the prefixes; drafts are random

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

    def _take_prefixes(self, plan: StepPlan) -> None:
        """Read from the pool the prefixes that new sequences reuse; forks have them from their source's slot."""
        forked: list[int] = [slot for forks in plan.ops_of(Forks) for slot in forks.dst_slots.tolist()]
        for row in np.flatnonzero((plan.starts > 0) & ~np.isin(plan.slots, forked)).tolist():
            slot, start = int(plan.slots[row]), int(plan.starts[row])
            if self._slots.is_new(slot, int(plan.epochs[row])):
                self._pool.read(plan, row, self._slots.prefixes[slot, :start])

    def _read_rows(self, plan: StepPlan) -> list[int]:
        """Append each row's tokens to its slot; returns the positions of the first ones."""
        offsets, starts = np.concatenate([[0], np.cumsum(plan.query_lens)]).tolist(), list[int]()
        for row in range(plan.num_rows):
            self._slots.begin_row(plan, row, self._pool.adapter(plan, row))
            tokens = plan.tokens[offsets[row] : offsets[row + 1]].tolist()
            starts.append(self._slots.extend(int(plan.slots[row]), tokens))
        return starts

    def _draw_rounds(self, plan: StepPlan, first_starts: list[int]) -> list[DrawnRow]:
        """What each row draws in all its rounds.

        Unlike on a device, a row does not end before it has drawn all its planned tokens: the pages must hold all
        planned positions.
        """
        slots, drawn = self._slots, [DrawnRow() for _ in first_starts]
        starts, self._late_drafts = dict(enumerate(first_starts)), {}
        for count in range(plan.num_rounds):
            rows = [row for row in starts if len(drawn[row].tokens) < plan.max_tokens[row]]
            if count:
                starts = {row: slots.extend(int(plan.slots[row]), [-1]) for row in rows}
            room = {row: int(plan.max_tokens[row]) - len(drawn[row].tokens) for row in rows}
            nodes = {row: draw_nodes(slots, plan, row, room[row]) for row in rows if row not in plan.late_rows}
            late = {row: draft_late(slots, plan, row, room[row]) for row in rows if row in plan.late_rows}
            self._check_rows(plan, {row: starts[row] for row in rows})
            for row in rows:
                slot = int(plan.slots[row])
                if (drafts := late.get(row)) is None:
                    accept(slots, slot, drawn[row], nodes[row])
                else:
                    slots.roll_back(slot, len(drafts))
                    drawn[row] = DrawnRow([0], [(EMPTY_PREFIX, 0)], [(len(drafts), 0)])
            self._late_drafts |= late
        return drawn

    def _check_rows(self, plan: StepPlan, starts: dict[int, int]) -> None:
        """All rows write before any is checked, so a page wrongly shared by two rows is detected. starts: positions
        of the rows' first tokens of a round."""
        slots = self._slots
        seen = {
            row: self._pool.write(plan, row, start, slots.sequence(int(plan.slots[row])))
            for row, start in starts.items()
        }
        for row, positions in seen.items():
            self._pool.check(plan, row, positions)
            _check(self._pool.adapter(plan, row) == slots.adapter(int(plan.slots[row])), "a row's adapter changes")


def _check(condition: object, message: str) -> None:
    if not condition:
        raise PagingError(message)
