"""Device: `PackedLeaf`, a packed matrix while it is filled: codes and scales have the same rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from checkpoints.loading.shard_buffers import Leaf, LeafTuple
from checkpoints.mapping.rules import Run
from pallas_kernels.qtensor import QTensor


@dataclass(frozen=True, slots=True)
class PackedLeaf:
    """struct: the matrix, of `jax.ShapeDtypeStruct`s."""

    struct: QTensor
    codes: Leaf | LeafTuple
    scales: Leaf | LeafTuple

    def needs(self, runs: Sequence[Run], start: int, stop: int) -> bool:
        """Whether any local shard holds part of the source rows `[start, stop)`."""
        return self.codes.needs(runs, start, stop) or self.scales.needs(runs, start, stop)

    def fill(self, runs: Sequence[Run], start: int, rows: tuple[np.ndarray, np.ndarray]) -> None:
        """Writes codes and scales of the source rows from `start` on."""
        for field, values in zip((self.codes, self.scales), rows, strict=True):
            field.fill(runs, start, values)

    def filled(self) -> QTensor:
        """The filled matrix."""
        return replace(self.struct, codes=self.codes.filled(), scales=self.scales.filled())
