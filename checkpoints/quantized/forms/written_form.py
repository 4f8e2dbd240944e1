"""Host: `WrittenForm`: how a weight `[out, in]` is quantized and written as tensors of a safetensors file.

Weights are rounded to the nearest code, a few rows at a time, or chosen by what they are multiplied by.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from checkpoints.formats.tensor_file import TensorInfo
from checkpoints.quantized.quantized_weight import Misfit

SCALES = np.dtype(np.float32)
PIECE_BYTES = 16 * 2**20  # of float32 values that are encoded at once
PIECE_ROWS = 32  # the rows of a piece are a multiple of them: zero points of several rows share a word


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """One tensor of a weight. suffix: follows the name of the weight's module."""

    suffix: str
    dtype: str
    shape: tuple[int, ...]
    values: np.dtype[Any]

    def info(self, module: str) -> TensorInfo:
        """As it is declared in the file."""
        return TensorInfo(module + self.suffix, self.shape, self.dtype, int(np.prod(self.shape)) * self.values.itemsize)


class WrittenForm(Protocol):
    """A form of quantized weights."""

    def config(self) -> dict[str, Any]:
        """The `quantization_config` of a model in this form."""
        ...

    def parts(self, shape: tuple[int, int]) -> list[WrittenPart]:
        """The tensors of a weight. Raises `Misfit` for a shape that has no such form."""
        ...

    def encode(self, rows: np.ndarray) -> list[np.ndarray]:
        """Of float32 rows, the rows of the parts that have rows. Raises `Misfit` for values that are not finite."""
        ...

    def constants(self, shape: tuple[int, int]) -> list[np.ndarray]:
        """The other parts."""
        ...


@runtime_checkable
class CalibratedForm(WrittenForm, Protocol):
    """A form whose codes depend on what the matrices are multiplied by."""

    def encode_whole(self, values: np.ndarray, sums: np.ndarray) -> list[np.ndarray]:
        """All parts of a matrix that have rows. sums: over inputs x of the matrix, of what the form says."""
        ...


def encoded(form: WrittenForm, values: np.ndarray) -> list[np.ndarray]:
    """All parts of a weight, each value rounded to the nearest code."""
    num_out, num_in = values.shape
    return by_pieces(form.encode, values) + form.constants((num_out, num_in))


def by_pieces(encode: Callable[[np.ndarray], list[np.ndarray]], values: np.ndarray) -> list[np.ndarray]:
    """What `encode` makes of float32 rows, a few at a time."""
    pieces = [encode(rows.astype(np.float32)) for rows in pieces_of(values)]
    return [np.concatenate(parts) for parts in zip(*pieces, strict=True)]


def finite(rows: np.ndarray) -> np.ndarray:
    """The rows; raises `Misfit` where one has no finite value."""
    if not np.isfinite(rows).all():
        raise Misfit("it has values that are not finite")
    return rows


def config_of(stored_as: str, weights: dict[str, Any], activations: dict[str, Any] | None) -> dict[str, Any]:
    """Of compressed-tensors: all linear layers but the head."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "format": stored_as,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
    }


def pieces_of(values: np.ndarray) -> Iterator[np.ndarray]:
    """Some rows at a time, of at most `PIECE_BYTES` in float32 where 32 rows have no more."""
    step = max(1, PIECE_BYTES // (4 * values.shape[1] * PIECE_ROWS)) * PIECE_ROWS
    for start in range(0, len(values), step):
        yield values[start : start + step]
