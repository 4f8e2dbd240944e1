"""Device: `PackedLeaf`, a packed matrix while it is filled, and `PartsLeaf`, one of several parts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import jax.numpy as jnp
import numpy as np

from checkpoints.loading.shard_buffers import Leaf, LeafTuple
from checkpoints.mapping.rules import Run
from pallas_kernels.block_forms.table_forms import NestedScales, shares_of
from pallas_kernels.block_tensor import BlockTensor, RowParts
from pallas_kernels.qtensor import QTensor

ORDER = "order"
"""The name of an order of inputs [1, I] among the fields of rows."""


@dataclass(frozen=True, slots=True)
class PackedLeaf:
    """All fields have the same rows. struct: the matrix, of `jax.ShapeDtypeStruct`s. fields: by name; of a
    `QTensor` its codes, scales and outliers. of_inputs: fields [L, n] that have one row a layer: the order of inputs,
    or the columns of outliers."""

    struct: QTensor | BlockTensor
    fields: Mapping[str, Leaf | LeafTuple]
    of_inputs: Mapping[str, Leaf] = field(default_factory=dict[str, Leaf])

    def needs(self, runs: Sequence[Run], start: int, stop: int) -> bool:
        """Whether any local shard holds part of the source rows `[start, stop)`."""
        return any(leaf.needs(runs, start, stop) for leaf in self.fields.values())

    def fill(self, runs: Sequence[Run], start: int, rows: Mapping[str, np.ndarray]) -> None:
        """Writes the fields of the source rows from `start` on; a field may be kept as the bits of its numbers, and
        scales of double quantization are rounded, or repeated for the shares of rows that devices have."""
        if isinstance(self.struct, BlockTensor) and isinstance(self.struct.form.scales, NestedScales):
            rows = {**rows, **shares_of(np, self.struct.form, rows)}
        for name, leaf in self.fields.items():
            leaf.fill(runs, start, _kept(rows[name], leaf.dtype))
        for name, leaf in self.of_inputs.items():
            leaf.fill([Run(0, 1, (), target=runs[0].lead[0])], 0, rows[name])

    def filled(self) -> QTensor | BlockTensor:
        """The filled matrix."""
        filled = {name: leaf.filled() for name, leaf in self.fields.items()}
        of_inputs = {name: leaf.filled() for name, leaf in self.of_inputs.items()}
        if isinstance(self.struct, QTensor):
            return replace(self.struct, **filled, **of_inputs)
        return replace(self.struct, fields=filled, **of_inputs)


def _kept(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    are_numbers = all(jnp.issubdtype(own, jnp.floating) for own in (values.dtype, dtype))
    return values.astype(dtype, copy=False) if are_numbers else values.view(dtype)


class PartsLeaf:
    """parts: (rows of a layer, leaf) of each part; a tensor of the file lies in one of them."""

    def __init__(self, parts: Sequence[tuple[int, PackedLeaf]]) -> None:
        self._parts = parts

    def needs(self, runs: Sequence[Run], start: int, stop: int) -> bool:
        """See `PackedLeaf`."""
        return any(leaf.needs(own, start, stop) for leaf, own in self._by_part(runs))

    def fill(self, runs: Sequence[Run], start: int, rows: Mapping[str, np.ndarray]) -> None:
        """See `PackedLeaf`."""
        for leaf, own in self._by_part(runs):
            leaf.fill(own, start, rows)

    def filled(self) -> RowParts:
        """The filled matrix."""
        return RowParts(tuple(cast(BlockTensor, leaf.filled()) for _, leaf in self._parts))

    def _by_part(self, runs: Sequence[Run]) -> Iterator[tuple[PackedLeaf, list[Run]]]:
        first = 0
        for num_rows, leaf in self._parts:
            own = [replace(run, target=run.target - first) for run in runs if first <= run.target < first + num_rows]
            if own:
                yield leaf, own
            first += num_rows
