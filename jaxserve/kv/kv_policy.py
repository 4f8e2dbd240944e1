"""Host: `KVPolicy`: which of the KV that it has computed a sequence keeps."""

from typing import Protocol, runtime_checkable

import numpy as np

from jaxserve.core.device_ops import DeviceOp
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.slot_table import SlotTable


@runtime_checkable
class KVPolicy(Protocol):
    """Applies to the sequences whose requests say so. The first policy is `StreamingPolicy`.

    What it drops depends on a sequence's positions alone, not on chunks, batches and preemption. The pages of a
    sequence without drops are those that any other with its tokens has; afterwards none of them enters the prefix
    cache, and none is forked.

    capacity: tokens that it keeps at most; it drops nothing from sequences of as many. max_len: the most tokens of a
    sequence. can_roll_back: whether positions may be computed with drafts and taken back.
    """

    capacity: int
    max_len: int
    can_roll_back: bool

    def num_own_pages(self, groups: KVGroups) -> int:
        """Pages that a slot holds outside its page tables."""
        ...

    def begin(self, slot_table: SlotTable, groups: KVGroups, slot: int, pages: np.ndarray) -> None:
        """Take a new slot over, with `num_own_pages` pages of its own."""

    def is_due(self, slot_table: SlotTable) -> np.ndarray:
        """bool[slots]: slots with a drop before the next position that is planned for them."""
        ...

    def drop(self, slot_table: SlotTable, groups: KVGroups, slot: int) -> np.ndarray:
        """Make a due slot's next drop; returns the pages that it no longer has.

        They may be given out at once: whatever takes them is dispatched after the copies of `take_ops`.
        """
        ...

    def has_dropped(self, slot_table: SlotTable, groups: KVGroups, slot: int) -> bool:
        """Whether the slot's pages are not those that other sequences with its tokens have."""
        ...

    def take_ops(self) -> list[DeviceOp]:
        """The copies of all drops since the last call."""
        ...
