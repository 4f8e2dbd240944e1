"""Host: `StreamingPolicy`: sequences keep the KV of their first tokens, the sinks, and of their last ones.

    2 sinks, at most 10 tokens, pages of 4                        first_pages     table                  spare page
    before token 10     0 1 2 3 | 4 5 6 7 | 8 9                             0     A         B         C           S
    with it             0 1 6 7 | 8 9 10                                    1     S         C                     A

A row computes tokens up to `span_end` with the same KV. Then its second page B is dropped: the device copies what
remains of it (6 7) to the sequence's own page S, and the sinks from A, where they stay as they were written; their keys
are rotated to the distance at which the next tokens see them (`sink_copies`). Pages A and B may be shared. When a page
is dropped depends on positions alone, hence not on chunks, batches and preemption (StreamingLLM, arXiv 2309.17453).
"""

import numpy as np

from jaxserve.core.device_ops import DeviceOp, PageDrops
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.options.kv_policy_config import MAX_STREAM_TOKENS, StreamingConfig
from jaxserve.core.slot_table import SlotTable

Drop = tuple[int, int, int, int, int]
"""A column of `PageDrops`."""


class StreamingPolicy:
    """A `KVPolicy` for the groups without a window. drops: since the last plan."""

    def __init__(self, config: StreamingConfig):
        self.config = config
        self.capacity, self.max_len = config.capacity, MAX_STREAM_TOKENS
        self.can_roll_back = False  # a rejected draft could lie beyond a drop
        self.drops: list[Drop] = []

    def num_own_pages(self, groups: KVGroups) -> int:
        return len(groups.unwindowed)

    def begin(self, slot_table: SlotTable, groups: KVGroups, slot: int, pages: np.ndarray) -> None:
        slot_table.span_end[slot] = self.capacity
        slot_table.spare_pages[groups.unwindowed, slot] = pages

    def is_due(self, slot_table: SlotTable) -> np.ndarray:
        return slot_table.is_left & (slot_table.num_scheduled >= slot_table.span_end)

    def drop(self, slot_table: SlotTable, groups: KVGroups, slot: int) -> np.ndarray:
        pages = [self._drop_page(slot_table, groups, slot, g) for g in groups.unwindowed]
        slot_table.span_end[slot] += groups.page_size
        return np.array(pages, np.int32)

    def has_dropped(self, slot_table: SlotTable, groups: KVGroups, slot: int) -> bool:
        return bool(slot_table.first_pages[groups.unwindowed, slot].any())

    def take_ops(self) -> list[DeviceOp]:
        if not self.drops:
            return []
        columns = np.array(self.drops, np.int32).T
        self.drops.clear()
        return [PageDrops(*columns)]

    def _drop_page(self, slot_table: SlotTable, groups: KVGroups, slot: int, group: int) -> int:
        """Drop the slot's second page of a group."""
        firsts, spares = slot_table.first_pages[group], slot_table.spare_pages[group]
        table = slot_table.page_tables[group]
        first, second = int(table[slot, 0]), int(table[slot, 1])
        sinks, own = int(spares[slot]), first
        if firsts[slot] == 0:
            sinks, own = first, sinks
            spares[slot] = sinks
        num_columns = int(slot_table.end_page[slot] - firsts[slot])
        table[slot, 1 : num_columns - 1] = table[slot, 2:num_columns].copy()
        table[slot, num_columns - 1] = 0
        table[slot, 0] = own
        firsts[slot] += 1
        self.drops.append((group, sinks, second, own, int(firsts[slot]) * groups.page_size))
        return second
