"""Host: W8A8 with outliers (Dettmers et al., LLM.int8(), arXiv 2208.07339): inputs of each matrix that are large in a
text, and their weights, are not coded."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from checkpoints.quantized.forms.int_form import IntForm
from checkpoints.quantized.forms.written_form import WrittenPart, by_pieces
from checkpoints.quantized.outlier_weight import COLUMNS, WEIGHTS
from checkpoints.quantized.quantized_weight import Misfit

THRESHOLD = 6.0
"""Of the magnitude of inputs, in section 3.2."""
_NAMES = {"float32": "F32", "bfloat16": "BF16"}
_INDICES = np.dtype(np.int32)
_CODES = IntForm(has_coded_inputs=True)


@dataclass(frozen=True, slots=True)
class OutlierForm:
    """A `CalibratedForm`. num_outliers: places for columns in each matrix. dtype: of their weights."""

    num_outliers: int
    dtype: np.dtype

    def config(self) -> dict[str, Any]:
        """See `WrittenForm`. That of the codes, which stand for all columns."""
        return _CODES.config()

    def parts(self, shape: tuple[int, int]) -> list[WrittenPart]:
        """See `WrittenForm`."""
        count = self.num_outliers
        if count >= shape[1]:
            raise Misfit(f"--outliers {count} must be less than its {shape[1]} inputs")
        return [
            *_CODES.parts(shape),
            WrittenPart(COLUMNS, "I32", (count,), _INDICES),
            WrittenPart(WEIGHTS, _NAMES[self.dtype.name], (shape[0], count), self.dtype),
        ]

    def encode(self, rows: np.ndarray) -> list[np.ndarray]:
        """See `WrittenForm`."""
        return _CODES.encode(rows)

    def constants(self, shape: tuple[int, int]) -> list[np.ndarray]:
        """See `WrittenForm`."""
        return _CODES.constants(shape)

    def encode_whole(self, values: np.ndarray, sums: np.ndarray) -> list[np.ndarray]:
        """See `CalibratedForm`. sums: the largest magnitude of each input, [in]."""
        columns = outlier_columns(sums, self.num_outliers)
        weights = np.zeros((len(values), self.num_outliers), self.dtype)
        weights[:, : len(columns)] = values[:, columns].astype(self.dtype)
        places = np.full(self.num_outliers, values.shape[1], _INDICES)
        places[: len(columns)] = columns
        return [*by_pieces(self.encode, values), places, weights]


def outlier_columns(largest: np.ndarray, most: int) -> np.ndarray:
    """The inputs above the threshold, at most so many, those that are largest; ascending."""
    order = np.argsort(-largest, kind="stable")[:most]
    return np.sort(order[largest[order] > THRESHOLD])
