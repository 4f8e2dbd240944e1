"""Host: `WrittenParts`: what is written of each tensor of the model: itself, or the parts of its quantized form."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.formats.tensor_file import TensorInfo
from checkpoints.loading.leaf_reader import Leaves
from checkpoints.mapping.parts import Part
from checkpoints.quantized.forms.written_form import CalibratedForm, WrittenForm, encoded
from checkpoints.quantized.quantized_weight import Misfit
from checkpoints.writing.reverse_rules import TensorBuilder, WrittenTensor

WEIGHT = ".weight"
InputSums = Callable[[Part, str], np.ndarray]
"""Of the inputs of a leaf of a part, what a `CalibratedForm` needs; asked for part after part."""


class WrittenTensorPart(NamedTuple):
    """One tensor of a file, and what makes its values."""

    info: TensorInfo
    make: Callable[[], np.ndarray]


class WrittenParts:
    """Parts of tensors. form: of the layers' matrices; None: they are written in `dtype`, like the others. whole:
    leaves that are written in float32. sums: for a form that needs them. Keeps the parts
    of the last matrix, which are asked for one after the other."""

    def __init__(
        self,
        leaves: Leaves,
        dtype: np.dtype,
        form: WrittenForm | None,
        whole: frozenset[str] = frozenset(),
        sums: InputSums | None = None,
    ) -> None:
        self._dtype, self._form, self._whole, self._sums = dtype, form, whole, sums
        self._builder = TensorBuilder(leaves, dtype if form is None else np.dtype(np.float32))
        self._last, self._parts = "", list[np.ndarray]()

    def of(self, tensor: WrittenTensor) -> Iterator[WrittenTensorPart]:
        """Raises `CheckpointError` where a matrix has no such form."""
        if self._form is None or not _is_quantized(tensor):
            info, dtype = tensor.info, self._dtype
            if tensor.leaf in self._whole:
                size = math.prod(info.shape) * np.dtype(np.float32).itemsize
                info, dtype = replace(info, dtype="F32", nbytes=size), np.dtype(np.float32)
            yield WrittenTensorPart(info, partial(self._plain, tensor, dtype))
            return
        num_out, num_in = tensor.info.shape
        try:
            parts = self._form.parts((num_out, num_in))
        except Misfit as misfit:
            raise _fault(tensor, misfit) from misfit
        for i, part in enumerate(parts):
            yield WrittenTensorPart(part.info(tensor.info.name.removesuffix(WEIGHT)), partial(self._part, tensor, i))

    def _plain(self, tensor: WrittenTensor, dtype: np.dtype) -> np.ndarray:
        return self._builder.build(tensor).astype(dtype, copy=False)

    def _part(self, tensor: WrittenTensor, index: int) -> np.ndarray:
        assert self._form is not None
        if self._last != tensor.info.name:
            self._last, self._parts = "", []  # at most one matrix in memory
            try:
                self._parts = self._encoded(self._form, tensor)
            except Misfit as misfit:
                raise _fault(tensor, misfit) from misfit
            self._last = tensor.info.name
        return self._parts[index]

    def _encoded(self, form: WrittenForm, tensor: WrittenTensor) -> list[np.ndarray]:
        values = self._builder.build(tensor)
        if not isinstance(form, CalibratedForm):
            return encoded(form, values)
        assert self._sums is not None
        num_out, num_in = values.shape
        whole = form.encode_whole(values, self._sums(tensor.part, tensor.leaf))
        return whole + form.constants((num_out, num_in))


def _is_quantized(tensor: WrittenTensor) -> bool:
    return tensor.part.index is not None and len(tensor.info.shape) == 2 and tensor.info.name.endswith(WEIGHT)


def _fault(tensor: WrittenTensor, misfit: Misfit) -> CheckpointError:
    return CheckpointError(f"{tensor.info.name} cannot be quantized: {misfit}")
