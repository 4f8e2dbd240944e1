"""Host: integers of 4 bits in groups, chosen by GPTQ, in the form of compressed-tensors."""

from dataclasses import dataclass

import numpy as np

from checkpoints.quantized.forms.code_grid import IntGrid
from checkpoints.quantized.forms.gptq_rounding import GptqRounding
from checkpoints.quantized.forms.group_form import BITS, GroupForm
from checkpoints.quantized.forms.written_form import by_pieces, finite


@dataclass(frozen=True, slots=True)
class GptqForm(GroupForm):
    """A `CalibratedForm`."""

    def encode_whole(self, values: np.ndarray, sums: np.ndarray) -> list[np.ndarray]:
        """See `CalibratedForm`. sums: of x xᵀ, [in, in]."""
        rounding = GptqRounding(sums, self.group_len, IntGrid(BITS))
        return by_pieces(lambda rows: self.stored(*rounding.codes(finite(rows))), values)
