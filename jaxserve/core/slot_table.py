"""Host: `SlotTable`: the state of running sequences as numpy arrays with one row per slot."""

import numpy as np

from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.row_layout import SAMPLING_FIELDS
from jaxserve.core.sequence import Sequence

NO_SPAN_END = np.iinfo(np.int32).max


class SlotTable:
    """A step is planned and committed by a few array operations, whatever the number of rows.

    KV positions: [0, num_computed) are committed, at most [num_computed, num_scheduled) are being written by steps in
    flight, whose commits lower num_scheduled by what they have not computed.
    num_scheduled == num_tokens means that the next token is in flight too, as the last known one has been submitted.
    Positions from max_computed on are never computed: the KV of the last token is never read.
    Pages: in every group a slot has the pages [first_pages[g], end_page) of its sequence; page_tables[g][slot, j] is
    the id of page first_pages[g] + j, and 0, the scratch page, past end_page.
    A streaming slot drops a page before position span_end is computed (`StreamingPolicy`): first_pages[g] counts these
    pages too, and such a slot has the page spare_pages[g] outside its table.
    """

    def __init__(self, num_slots: int, max_len: int, groups: KVGroups, widths: tuple[int, ...]):
        """max_len: the most tokens of a sequence; rows that are never used take no memory."""
        self.epoch = np.zeros(num_slots, np.int32)  # changes when results in flight are to be dropped
        self.is_running = np.zeros(num_slots, bool)
        self.draws_late = np.zeros(num_slots, bool)  # the host must see a token before the next is drawn
        self.has_grammar = np.zeros(num_slots, bool)  # its tokens are masked by what a grammar allows
        self.may_draft = np.zeros(num_slots, bool)
        self.is_beam = np.zeros(num_slots, bool)  # the host chooses the tokens: nothing is drawn
        self.has_extras = np.zeros(num_slots, bool)  # needs log-probabilities, pooling or edits in addition to tokens
        self.last_step = np.full(num_slots, -1, np.int64)  # the last step with a row of this slot

        self.tokens = np.zeros((num_slots, max_len), np.int32)
        self.num_tokens = np.zeros(num_slots, np.int32)
        self.num_computed = np.zeros(num_slots, np.int32)
        self.num_scheduled = np.zeros(num_slots, np.int32)

        self.prompt_len = np.zeros(num_slots, np.int32)
        self.max_len = np.zeros(num_slots, np.int32)  # tokens at which the sequence ends
        self.max_computed = np.zeros(num_slots, np.int32)
        self.min_len = np.zeros(num_slots, np.int32)  # first position at which a stop token may be drawn
        self.stop_ids = np.full((num_slots, 1), -1, np.int32)  # padded with -1
        self.sampling = np.zeros((num_slots, len(SAMPLING_FIELDS)), np.int32)

        self.span_end = np.full(num_slots, NO_SPAN_END, np.int32)
        self.num_kept = np.zeros(num_slots, np.int32)  # leading pages that the prefix cache has
        self.end_page = np.zeros(num_slots, np.int32)
        self.first_pages = np.zeros((groups.num_groups, num_slots), np.int32)
        self.spare_pages = np.zeros((groups.num_groups, num_slots), np.int32)  # 0: none
        self.page_tables = tuple(np.zeros((num_slots, width), np.int32) for width in widths)
        self.table_widths = np.array(widths)[:, None]  # int[G, 1]

        self.sequences: list[Sequence | None] = [None] * num_slots
        self.free_slots = list(range(num_slots))[::-1]

    def assign(self, sequence: Sequence) -> int:
        """Move the sequence into a free slot, with no KV computed; the caller sets limits and parameters."""
        slot = self.free_slots.pop()
        self.sequences[slot] = sequence
        sequence.attach(slot, self.tokens[slot], self.num_tokens[slot : slot + 1])
        self.num_computed[slot] = self.num_scheduled[slot] = 0
        self.prompt_len[slot] = sequence.prompt_len
        self.is_running[slot] = True
        return slot

    def free(self, slot: int) -> None:
        """Free a slot whose pages have been released and whose sequence is detached."""
        self.sequences[slot] = None
        self.is_running[slot] = False
        self.epoch[slot] += 1
        self.last_step[slot] = -1
        self.num_kept[slot] = self.end_page[slot] = 0
        self.first_pages[:, slot] = self.spare_pages[:, slot] = 0
        self.span_end[slot] = NO_SPAN_END
        for table in self.page_tables:
            table[slot] = 0
        self.free_slots.append(slot)

    def set_stop_ids(self, slot: int, ids: tuple[int, ...]) -> None:
        """Set the stop tokens of a slot; the array grows to the longest list."""
        missing = len(ids) - self.stop_ids.shape[1]
        if missing > 0:
            self.stop_ids = np.pad(self.stop_ids, ((0, 0), (0, missing)), constant_values=-1)
        self.stop_ids[slot] = -1
        self.stop_ids[slot, : len(ids)] = ids

    @property
    def num_inputs(self) -> np.ndarray:
        """int32[slots]: known tokens that are or will be computed."""
        return np.minimum(self.num_tokens, self.max_computed)

    @property
    def is_left(self) -> np.ndarray:
        """bool[slots]: running, with positions that no step has been planned for."""
        return self.is_running & (self.num_scheduled < self.max_computed)

    @property
    def num_pages(self) -> np.ndarray:
        """int32[G, slots]: pages in each group."""
        return self.end_page - self.first_pages

    def pages(self, slot: int) -> np.ndarray:
        """All page ids of a slot, of every group."""
        spare = self.spare_pages[:, slot]
        tables = [t[slot, :n] for t, n in zip(self.page_tables, self.num_pages[:, slot], strict=True)]
        return np.concatenate([*tables, spare[spare > 0]])
