"""Host: `QuantizedWeight` and `Scheme`: the interface of quantized weights in safetensors files, and checks of parts.

A weight `[out, in]` is stored as several tensors: codes, scales, zero points. A scheme knows which, by their names.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from checkpoints.formats.tensor_file import ColumnFile, TensorInfo

Tensors = Mapping[str, TensorInfo]
FLOATS = ("F32", "F16", "BF16")


class Misfit(ValueError):
    """A weight lacks a tensor, or has one of another type or shape."""


class QuantizedWeight(Protocol):
    """info: of the decoded weight: its name, its shape, the name of the format, and the bytes of all its tensors.
    tensors: their names."""

    @property
    def info(self) -> TensorInfo: ...

    @property
    def tensors(self) -> tuple[str, ...]: ...

    def rows(self, file: ColumnFile, start: int, stop: int) -> np.ndarray:
        """Decoded rows `[start, stop)`, float32."""
        ...


class Scheme(Protocol):
    """How a model's weights are quantized."""

    def has_codes(self, info: TensorInfo) -> bool:
        """Whether a tensor holds the codes of a weight; each weight has one such tensor."""
        ...

    def weight(self, file: ColumnFile, name: str) -> QuantizedWeight:
        """The weight whose codes this tensor holds. Raises `Misfit`."""
        ...


def part(
    tensors: Tensors, name: str, dtypes: Sequence[str], shapes: Sequence[tuple[int, ...]], needed_by: str
) -> TensorInfo:
    """A tensor with one of these types and shapes; raises `Misfit` where there is none."""
    info = tensors.get(name)
    if info is None:
        raise Misfit(f"{name} is missing, which {needed_by} needs")
    check_part(info, dtypes, shapes, needed_by)
    return info


def check_part(info: TensorInfo, dtypes: Sequence[str], shapes: Sequence[tuple[int, ...]], needed_by: str) -> None:
    """Raises `Misfit` where a tensor has none of these types or shapes."""
    if info.dtype not in dtypes:
        raise Misfit(f"{info.name} has the type {info.dtype}; {needed_by} needs {' or '.join(dtypes)}")
    if info.shape not in shapes:
        expected = " or ".join(str(list(shape)) for shape in shapes)
        raise Misfit(f"{info.name} has the shape {list(info.shape)}; {needed_by} needs {expected}")


def num_groups_of(tensors: Tensors, name: str) -> int:
    """Rows of scales [groups, out]; 1 where there are none, which `part` then refuses."""
    scales = tensors.get(name)
    return scales.shape[0] or 1 if scales is not None and len(scales.shape) == 2 else 1


def weight_info(name: str, shape: tuple[int, ...], format_name: str, parts: Iterable[TensorInfo | None]) -> TensorInfo:
    """Of a weight with these parts."""
    return TensorInfo(name, shape, format_name, sum(info.nbytes for info in parts if info is not None))


def names_of(*parts: TensorInfo | None) -> tuple[str, ...]:
    """Of the parts that there are."""
    return tuple(info.name for info in parts if info is not None)


def whole_tensor(file: ColumnFile, info: TensorInfo) -> np.ndarray:
    """All values of a tensor, in its shape."""
    return file.read_rows(info.name, 0, info.num_rows).reshape(info.shape)
