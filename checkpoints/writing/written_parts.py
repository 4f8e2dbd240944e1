"""Host: `WrittenParts`: what is written of each tensor of the model: itself, or the parts of its quantized form."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.formats.tensor_file import TensorInfo
from checkpoints.loading.leaf_reader import Leaves
from checkpoints.quantized.forms.written_form import WrittenForm, encoded
from checkpoints.quantized.quantized_weight import Misfit
from checkpoints.writing.reverse_rules import TensorBuilder, WrittenTensor

WEIGHT = ".weight"


class WrittenTensorPart(NamedTuple):
    """One tensor of a file, and what makes its values."""

    info: TensorInfo
    make: Callable[[], np.ndarray]


class WrittenParts:
    """Parts of tensors. form: of the layers' matrices; None: they are written in `dtype`, like the others. Keeps the
    parts of the last matrix, which are asked for one after the other."""

    def __init__(self, leaves: Leaves, dtype: np.dtype, form: WrittenForm | None) -> None:
        self._dtype, self._form = dtype, form
        self._builder = TensorBuilder(leaves, dtype if form is None else np.dtype(np.float32))
        self._last, self._parts = "", list[np.ndarray]()

    def of(self, tensor: WrittenTensor) -> Iterator[WrittenTensorPart]:
        """Raises `CheckpointError` where a matrix has no such form."""
        if self._form is None or not _is_quantized(tensor):
            yield WrittenTensorPart(tensor.info, partial(self._plain, tensor))
            return
        num_out, num_in = tensor.info.shape
        try:
            parts = self._form.parts((num_out, num_in))
        except Misfit as misfit:
            raise _fault(tensor, misfit) from misfit
        for i, part in enumerate(parts):
            yield WrittenTensorPart(part.info(tensor.info.name.removesuffix(WEIGHT)), partial(self._part, tensor, i))

    def _plain(self, tensor: WrittenTensor) -> np.ndarray:
        return self._builder.build(tensor).astype(self._dtype, copy=False)

    def _part(self, tensor: WrittenTensor, index: int) -> np.ndarray:
        assert self._form is not None
        if self._last != tensor.info.name:
            self._last, self._parts = "", []  # at most one matrix in memory
            try:
                self._parts = encoded(self._form, self._builder.build(tensor))
            except Misfit as misfit:
                raise _fault(tensor, misfit) from misfit
            self._last = tensor.info.name
        return self._parts[index]


def _is_quantized(tensor: WrittenTensor) -> bool:
    return tensor.part.index is not None and len(tensor.info.shape) == 2 and tensor.info.name.endswith(WEIGHT)


def _fault(tensor: WrittenTensor, misfit: Misfit) -> CheckpointError:
    return CheckpointError(f"{tensor.info.name} cannot be quantized: {misfit}")
