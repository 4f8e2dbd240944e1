"""Host: `Speculation`: how many drafts the rows of a step may have."""

import numpy as np

from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.core.slot_table import SlotTable


def make_speculation(config: SpeculativeConfig | None) -> "Speculation | None":
    """None where the engine does not draft."""
    return None if config is None else Speculation(config.num_speculative_tokens)


class Speculation:
    """max_drafts: the most drafts of a row in a round."""

    def __init__(self, max_drafts: int):
        self.max_drafts = max_drafts

    def drafts_of(self, slot_table: SlotTable, slots: np.ndarray) -> np.ndarray:
        """int32[S]: drafts for each slot; none where the host must see a token before the next is drawn."""
        return np.where(slot_table.is_synchronous[slots], 0, self.max_drafts).astype(np.int32)
