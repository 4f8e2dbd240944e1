"""Host: `PackedFile`: the interface of files whose weights can be read as they are packed."""

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from pallas_kernels.block_forms.block_form import BlockForm


@runtime_checkable
class PackedFile(Protocol):
    """Those that are not in blocks are read as rows of values (`TensorFile`)."""

    def form_of(self, name: str) -> "BlockForm | None":
        """The form of a tensor's blocks; None: it has none that devices decode."""
        ...

    def read_fields(self, name: str, start: int, stop: int) -> dict[str, np.ndarray]:
        """The form's fields of rows `[start, stop)`, each [rows, blocks · count]; also those of the form that
        kernels read in its place (`wide_blocks.py`, `packed_zeros.py`)."""
        ...
