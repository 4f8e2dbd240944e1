"""Host: `FakeSlots`: what a runner keeps by slot, with hashes of prefixes in place of a state of the device."""

from collections.abc import Callable

import numpy as np

from jaxserve.core.device_ops import SlotEdits
from jaxserve.core.row_layout import SAMPLING_INDEX
from jaxserve.core.step_plan import StepPlan
from jaxserve.runner.fake.fake_model import EMPTY_PREFIX, FakeModel, extend_prefix
from jaxserve.runner.fake.fake_pool import PagingError


class FakeSlots:
    """Sequences, last tokens, edits and masks.

    prefixes: uint64[slots, positions], the hash of the sequence up to each position. num_computed: tokens of all
    sequences so far.
    """

    def __init__(self, model: FakeModel, num_slots: int, max_len: int):
        self.prefixes = np.zeros((num_slots, max_len), np.uint64)
        self.edits: dict[int, SlotEdits] = {}
        self.masks: dict[int, np.ndarray] = {}  # by row of masks
        self.num_computed = 0
        self._model = model
        self._lengths = [0] * num_slots
        self._last_tokens = [0] * num_slots
        self._epochs = [-1] * num_slots
        self._adapters = [EMPTY_PREFIX] * num_slots  # keys: what prefixes begin with

    def is_new(self, slot: int, epoch: int) -> bool:
        """Whether the slot has had no row of this sequence."""
        return epoch != self._epochs[slot]

    def begin_row(self, plan: StepPlan, row: int, adapter: int) -> None:
        """Check that the slot stands where the row begins; adapter: the key of the row's.

        Raises `PagingError` if not. A new sequence begins behind the prefix that it reuses.
        """
        slot, epoch, start = int(plan.slots[row]), int(plan.epochs[row]), int(plan.starts[row])
        if self.is_new(slot, epoch):
            if start < 0:
                raise PagingError(f"slot {slot}: a new sequence begins at {start}")
            self._epochs[slot], self._adapters[slot], self._lengths[slot] = epoch, adapter, start
        elif start not in (-1, self._lengths[slot]):
            raise PagingError(f"slot {slot} is {self._lengths[slot]} long, the row at {start}")

    def adapter(self, slot: int) -> int:
        """The key of the adapter of the slot's sequence."""
        return self._adapters[slot]

    def extend(self, slot: int, tokens: list[int]) -> int:
        """Append tokens, -1: the one drawn last; returns the position of the first."""
        start = self._lengths[slot]
        prefix = int(self.prefixes[slot, start - 1]) if start else self._adapters[slot]
        for i, token in enumerate(tokens):
            prefix = extend_prefix(prefix, self._last_tokens[slot] if token < 0 else token)
            self.prefixes[slot, start + i] = prefix
        self._lengths[slot] += len(tokens)
        self.num_computed += len(tokens)
        return start

    def roll_back(self, slot: int, num_tokens: int) -> None:
        """Take tokens back, the last ones."""
        self._lengths[slot] -= num_tokens

    def prefix(self, slot: int) -> int:
        """The hash of the slot's sequence."""
        return int(self.prefixes[slot, self._lengths[slot] - 1])

    def sequence(self, slot: int, start: int = 0) -> np.ndarray:
        """The prefixes of all positions from `start` on."""
        return self.prefixes[slot, start : self._lengths[slot]]

    def draw(self, plan: StepPlan, row: int, fields: np.ndarray) -> int | None:
        """The row's token by its sampling fields, None for bad logits; 0 if the row does not sample."""
        if not plan.samples[row]:
            return 0
        slot = int(plan.slots[row])
        words = fields[[SAMPLING_INDEX["seed_low"], SAMPLING_INDEX["seed_high"]]].view(np.uint32).tolist()
        position = self._lengths[slot]
        token = self._model.draw(
            self.prefix(slot),
            words[0] | words[1] << 32,
            int(fields[SAMPLING_INDEX["sample_index"]]),
            position,
            self._allowed(slot, fields, position),
        )
        self.set_last_token(slot, token)
        return token

    def set_last_token(self, slot: int, token: int | None) -> None:
        """The token that `extend` appends for -1; None: bad logits."""
        self._last_tokens[slot] = token or 0

    def _allowed(self, slot: int, fields: np.ndarray, position: int) -> Callable[[int], bool]:
        banned: set[int] = set()
        if fields[SAMPLING_INDEX["has_edits"]]:
            edits = self.edits[slot]
            banned.update(edits.ids[np.isneginf(edits.bias) & (position < edits.until)].tolist())
        mask_row = int(fields[SAMPLING_INDEX["mask_row"]])
        mask = self.masks[mask_row] if mask_row else None
        return lambda token: token not in banned and (mask is None or bool(mask[token // 32] >> (token % 32) & 1))
