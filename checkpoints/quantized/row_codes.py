"""Host: `RowCodedWeight`: the interface of quantized weights that may have a scale for each row: `QTensor`'s form."""

from typing import Protocol, runtime_checkable

import numpy as np

from checkpoints.formats.tensor_file import ColumnFile


@runtime_checkable
class RowCodedWeight(Protocol):
    """row_scheme: the name of the scheme (of `qtensor.ALL_SCHEMES`); None: its scales are not those of rows."""

    @property
    def row_scheme(self) -> str | None: ...

    def row_codes(self, file: ColumnFile, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Codes [stop - start, in] of 8 bits, and scales [stop - start], float32, of rows."""
        ...
