"""Host: integers of 4 bits in groups, whose ranges weigh what products lose, in the form of compressed-tensors."""

from dataclasses import dataclass

import numpy as np

from checkpoints.quantized.forms.group_form import GroupForm
from checkpoints.quantized.forms.group_range import by_products
from checkpoints.quantized.forms.written_form import by_pieces


@dataclass(frozen=True, slots=True)
class AwqForm(GroupForm):
    """A `CalibratedForm`. Ranges are cut off as AWQ does (arXiv 2306.00978, section 5): where that loses less of the
    products."""

    def encode_whole(self, values: np.ndarray, sums: np.ndarray) -> list[np.ndarray]:
        """See `CalibratedForm`. sums: of x xᵀ, [in, in]."""
        loss = by_products(sums, self.group_len)
        return by_pieces(lambda rows: self.encoded(rows, loss), values)
