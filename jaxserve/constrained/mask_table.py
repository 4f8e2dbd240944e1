"""Host: `MaskTable`: one array for each content of a mask, so that equal masks are found by their identity."""

from collections import OrderedDict

import numpy as np

MAX_SAMPLES = 1024
MAX_ALIKE = 16  # at most 540 MB with a vocabulary of 262,144, and hardly ever more than 34: few masks are alike
SAMPLE = 61  # words from one that is part of the sample to the next


class MaskTable:
    """Rows of shared memory are overwritten by a later step; what this returns stays as it is, and is read-only.

    Most rows of a batch stand within a string or a number, and have masks that others have or had before. Hashing each
    (33 kB) would take as long as computing it: so masks are found by a sample of their words, then compared.
    """

    def __init__(self):
        self._masks: OrderedDict[bytes, list[tuple[bytes, np.ndarray]]] = OrderedDict()

    def find(self, row: np.ndarray) -> np.ndarray:
        """The array with this content, uint32[ceil(V / 32)]."""
        sample, data = row[::SAMPLE].tobytes(), row.tobytes()
        alike = self._masks.setdefault(sample, [])
        self._masks.move_to_end(sample)
        for known, mask in alike:
            if known == data:
                return mask
        mask = np.frombuffer(data, np.uint32)
        alike.append((data, mask))
        del alike[:-MAX_ALIKE]
        if len(self._masks) > MAX_SAMPLES:
            self._masks.popitem(last=False)
        return mask
