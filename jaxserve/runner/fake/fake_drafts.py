"""Host: drafts of `FakeRunner`: what the model draws, or something else, by chance; and what rows draw along them."""

from dataclasses import dataclass, field

from jaxserve.core.row_layout import SAMPLING_INDEX
from jaxserve.core.step_plan import LateDraw, StepPlan
from jaxserve.runner.fake.fake_model import mix
from jaxserve.runner.fake.fake_pool import PagingError
from jaxserve.runner.fake.fake_slots import FakeSlots

Scored = tuple[int, int]
"""A prefix, and the token after it whose log-probability is requested."""


@dataclass(slots=True)
class DrawnRow:
    """tokens: None for bad logits. scored: one entry for each. drafts: by round how many, and accepted ones."""

    tokens: list[int | None] = field(default_factory=list[int | None])
    scored: list[Scored] = field(default_factory=list[Scored])
    drafts: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


@dataclass(slots=True)
class Nodes:
    """A token drawn after a row's last one and after each of its drafts; the drafts are appended to its slot."""

    drawn: list[int | None] = field(default_factory=list[int | None])
    drafts: list[int] = field(default_factory=list[int])
    scored: list[Scored] = field(default_factory=list[Scored])


def draw_nodes(slots: FakeSlots, plan: StepPlan, row: int, room: int) -> Nodes:
    """Of a row that draws at most `room` tokens."""
    slot, nodes = int(plan.slots[row]), Nodes()
    num_drafts = _num_drafts(slots, plan, row, room)
    for i in range(num_drafts + 1):
        token = slots.draw(plan, row, plan.sampling[row])
        nodes.drawn.append(token)
        nodes.scored.append((slots.prefix(slot), token or 0))
        if i < num_drafts:
            is_right = token is not None and mix(slots.prefix(slot) ^ i) % 4 > 0
            nodes.drafts.append((token or 0) if is_right else (token or 0) + 1)
            slots.extend(slot, nodes.drafts[-1:])
    return nodes


def accept(slots: FakeSlots, slot: int, row: DrawnRow, nodes: Nodes) -> None:
    """Advance a row by the drafts that are what was drawn, and roll its slot back to the last of these."""
    num_drafts = len(nodes.drafts)
    num_accepted = next((i for i, draft in enumerate(nodes.drafts) if nodes.drawn[i] != draft), num_drafts)
    slots.roll_back(slot, num_drafts - num_accepted)
    slots.set_last_token(slot, nodes.drawn[num_accepted])
    row.tokens += nodes.drawn[: num_accepted + 1]
    row.scored += nodes.scored[: num_accepted + 1]
    row.drafts.append((num_drafts, num_accepted))


def draft_late(slots: FakeSlots, plan: StepPlan, row: int, room: int) -> list[int]:
    """Drafts of a late row, appended to its slot: drawn by the mask of the token before, or by none."""
    slot, drafts, fields = int(plan.slots[row]), list[int](), plan.sampling[row].copy()
    if mix(slots.prefix(slot)) % 8 > 3:
        fields[SAMPLING_INDEX["mask_row"]] = 0
    for i in range(_num_drafts(slots, plan, row, room)):
        token = slots.draw(plan, row, fields) or 0
        drafts.append(token if mix(slots.prefix(slot) ^ i) % 4 > 0 else token + 1)
        slots.extend(slot, drafts[-1:])
    return drafts


def draw_late(slots: FakeSlots, plan: StepPlan, late: LateDraw, i: int, drafts: list[int]) -> DrawnRow:
    """The i-th late row draws as long as what was drawn is the next draft of those that may be accepted."""
    row, fields, drawn = int(late.rows[i]), late.sampling[i].copy(), DrawnRow()
    slot, num = int(plan.slots[row]), 0
    if late.drafts is not None:
        num = int(late.drafts.num[i])
        if num > len(drafts):
            raise PagingError(f"row {row} of step {plan.step_id} has {len(drafts)} drafts, not {num}")
    for node in range(num + 1):
        if late.drafts is not None:
            fields[SAMPLING_INDEX["mask_row"]] = late.drafts.mask_rows[i, node]
        token = slots.draw(plan, row, fields)
        drawn.tokens.append(token)
        drawn.scored.append((slots.prefix(slot), token or 0))
        if node == num or token != drafts[node]:
            break
        slots.extend(slot, drafts[node : node + 1])
    return drawn


def _num_drafts(slots: FakeSlots, plan: StepPlan, row: int, room: int) -> int:
    most = min(int(plan.max_drafts[row]), room - 1)
    return mix(slots.prefix(int(plan.slots[row]))) % (most + 1) if most > 0 else 0
