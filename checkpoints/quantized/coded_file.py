"""Host: `CodedFile`: a file whose matrices of layers are rounded to codes of a few bits while they are read."""

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from checkpoints.errors import CheckpointError
from checkpoints.formats.tensor_file import TensorFile
from checkpoints.quantized.forms.written_form import finite
from checkpoints.quantized.quantized_weight import Misfit

if TYPE_CHECKING:
    from pallas_kernels.block_forms.block_form import BlockForm


class Coding(Protocol):
    """A form of `FORMS` that rounds rows of values alone."""

    def rounded(self, rows: Float[np.ndarray, "N I"]) -> Float[np.ndarray, "N I"]:
        """What the codes of finite float32 rows stand for."""
        ...


@runtime_checkable
class BlockCoding(Coding, Protocol):
    """One whose codes devices multiply by."""

    def block_form(self) -> "BlockForm":
        """The form of the codes on devices."""
        ...

    def fields(self, rows: Float[np.ndarray, "N I"]) -> dict[str, np.ndarray]:
        """The fields of this form of finite float32 rows."""
        ...


class CodedFile:
    """A `TensorFile` and a `PackedFile`. names: of the tensors that are rounded; the others are as in `file`."""

    def __init__(self, file: TensorFile, coding: Coding, names: frozenset[str]) -> None:
        self._file, self._coding, self._names = file, coding, names
        self.tensors, self.metadata = file.tensors, dict[str, Any](file.metadata)

    def form_of(self, name: str) -> "BlockForm | None":
        """See `PackedFile`."""
        if name in self._names and isinstance(self._coding, BlockCoding):
            return self._coding.block_form()
        return None

    def read_fields(self, name: str, start: int, stop: int) -> dict[str, np.ndarray]:
        """See `PackedFile`."""
        assert isinstance(self._coding, BlockCoding)
        return self._coding.fields(self._values(name, start, stop))

    def read_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """See `TensorFile`."""
        if name not in self._names:
            return self._file.read_rows(name, start, stop)
        return self._coding.rounded(self._values(name, start, stop))

    def _values(self, name: str, start: int, stop: int) -> Float[np.ndarray, "N I"]:
        try:
            return finite(self._file.read_rows(name, start, stop).astype(np.float32, copy=False))
        except Misfit as misfit:
            raise CheckpointError(f"{name} cannot be quantized: {misfit}") from misfit

    def close(self) -> None:
        """See `TensorFile`."""
        self._file.close()
