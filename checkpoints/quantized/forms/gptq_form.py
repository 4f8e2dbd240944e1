"""Host: integers of 4 bits in groups, chosen by GPTQ, in the form of compressed-tensors."""

from dataclasses import dataclass

import numpy as np

from checkpoints.quantized.forms.gptq_rounding import gptq_codes
from checkpoints.quantized.forms.group_form import BITS, GroupForm
from checkpoints.quantized.forms.written_form import finite


@dataclass(frozen=True, slots=True)
class GptqForm(GroupForm):
    """Needs what the matrices are multiplied by (`encode_whole`)."""

    def encode_whole(self, values: np.ndarray, hessian: np.ndarray) -> list[np.ndarray]:
        """All parts that have rows, of a whole matrix. hessian: of its inputs (`gptq_codes`)."""
        return self.stored(*gptq_codes(finite(values.astype(np.float32)), hessian, self.group_len, BITS))
