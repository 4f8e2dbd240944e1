"""Host: `OutlierWeight`: codes with a scale for each row, and in full the weights of inputs that are outliers.

    weight_outlier_columns    int32 [K]         the inputs, ascending; in's number: of none, in the places that are left
    weight_outliers           float [out, K]    their weights

These tensors are jaxserve's own. The codes stand for all weights, so who knows codes and scales alone has a complete
model, whose activations lose more by being coded.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from checkpoints.formats.outlier_columns import check_outlier_columns
from checkpoints.formats.tensor_file import ColumnFile, TensorInfo
from checkpoints.quantized.quantized_weight import FLOATS, Misfit, QuantizedWeight, part, weight_info, whole_tensor
from checkpoints.quantized.row_codes import RowCodedWeight

COLUMNS, WEIGHTS = ".weight_outlier_columns", ".weight_outliers"
SCHEME = "w8a8"


class CodedRows(QuantizedWeight, RowCodedWeight, Protocol):
    """Both."""


@dataclass(frozen=True, slots=True)
class OutlierWeight:
    """A `QuantizedWeight` and a `RowCodedWeight`."""

    info: TensorInfo
    tensors: tuple[str, ...]
    coded: CodedRows
    columns: TensorInfo
    weights: TensorInfo

    @property
    def row_scheme(self) -> str | None:
        """See `RowCodedWeight`."""
        return self.coded.row_scheme

    @property
    def num_outliers(self) -> int:
        """K."""
        return self.columns.shape[0]

    def row_codes(self, file: ColumnFile, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """See `RowCodedWeight`."""
        return self.coded.row_codes(file, start, stop)

    def rows(self, file: ColumnFile, start: int, stop: int) -> np.ndarray:
        """See `QuantizedWeight`."""
        values, columns = self.coded.rows(file, start, stop), self.outlier_columns(file)
        is_used = columns < self.info.shape[1]
        values[:, columns[is_used]] = self.outlier_rows(file, start, stop)[:, is_used]
        return values

    def outlier_columns(self, file: ColumnFile) -> np.ndarray:
        """int32 [K]. Raises `CheckpointError` where they are not as they must be."""
        columns = whole_tensor(file, self.columns)
        check_outlier_columns(self.columns.name, columns, self.info.shape[1])
        return columns

    def outlier_rows(self, file: ColumnFile, start: int, stop: int) -> np.ndarray:
        """float32 [stop - start, K]."""
        return file.read_rows(self.weights.name, start, stop).astype(np.float32)


def with_outliers(weight: CodedRows, file: ColumnFile) -> QuantizedWeight:
    """The weight with the outliers that the file has of it, if any. Raises `Misfit`."""
    name = weight.info.name.removesuffix(".weight")
    columns = file.tensors.get(name + COLUMNS)
    if columns is None:
        return weight
    if weight.row_scheme != SCHEME:
        raise Misfit(f"{columns.name} is for weights of {SCHEME}, with a scale for each row")
    if columns.dtype != "I32" or len(columns.shape) != 1 or not columns.shape[0]:
        raise Misfit(
            f"{columns.name} has the type {columns.dtype} and the shape {list(columns.shape)}; it must be I32 [K]"
        )
    num_out, num_in = weight.info.shape
    weights = part(file.tensors, name + WEIGHTS, FLOATS, [(num_out, columns.shape[0])], columns.name)
    info = weight_info(weight.info.name, (num_out, num_in), weight.info.dtype, (weight.info, columns, weights))
    return OutlierWeight(info, (*weight.tensors, columns.name, weights.name), weight, columns, weights)
