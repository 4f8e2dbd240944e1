"""Host: `PackedWeight`: the interface of quantized weights whose fields are read as devices keep them."""

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from checkpoints.formats.tensor_file import ColumnFile

if TYPE_CHECKING:
    from pallas_kernels.block_forms.block_form import BlockForm


@runtime_checkable
class PackedWeight(Protocol):
    """A `QuantizedWeight` of other codes than integers in groups (`GroupedWeight`)."""

    def form(self, file: ColumnFile) -> "BlockForm | None":
        """In which devices keep it; None: they cannot."""
        ...

    def fields(self, file: ColumnFile, form: "BlockForm", start: int, stop: int) -> dict[str, np.ndarray]:
        """Those of rows `[start, stop)`, each [rows, blocks · count]."""
        ...
