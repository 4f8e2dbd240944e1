"""Device: `Leaf` and `LeafTuple`: leaves of the parameter tree while they are filled, run by run, a buffer per shard.

Buffers start as zeros, the value of padding rows. Each write is a `dynamic_update_slice` that donates the buffer, so it
happens in place. A write finishes before the next piece is requested: asynchronous dispatch queues nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding
from jaxtyping import Array, Int, Shaped

from checkpoints.mapping.rules import Run


@partial(jax.jit, donate_argnums=0)
def _write(
    buffer: Shaped[Array, "..."], rows: Shaped[Array, "..."], starts: Int[Array, " axes"]
) -> Shaped[Array, "..."]:
    return jax.lax.dynamic_update_slice(buffer, rows, [starts[axis] for axis in range(buffer.ndim)])


class _Shard:
    """The part of a leaf on one device: `[lows[i], highs[i])` of every axis i."""

    def __init__(self, place: SingleDeviceSharding, index: tuple[slice, ...], struct: jax.ShapeDtypeStruct) -> None:
        bounds = [part.indices(size) for part, size in zip(index, struct.shape, strict=True)]
        self.place = place
        self.lows, self.highs = [low for low, _, _ in bounds], [high for _, high, _ in bounds]
        shape = tuple(high - low for low, high, _ in bounds)
        self.buffer: jax.Array = jax.numpy.zeros(shape, struct.dtype, device=place)

    def overlap(self, run: Run, start: int, stop: int) -> tuple[int, int]:
        """The source rows within `[start, stop)` that this run brings to this shard; empty if the first is not below
        the second.
        """
        axis = len(run.lead)
        if not all(low <= i < high for i, low, high in zip(run.lead, self.lows, self.highs, strict=False)):
            return start, start
        shift = run.source - run.target
        first = max(start, run.source, self.lows[axis] + shift)
        last = min(stop, run.source + run.num_rows, self.highs[axis] + shift)
        return first, max(first, last)

    def fill(self, run: Run, start: int, rows: np.ndarray) -> None:
        """Writes the part of `rows`, the source rows from `start` on, that belongs to this shard."""
        first, last = self.overlap(run, start, start + len(rows))
        if first >= last:
            return
        axis = len(run.lead)
        inner = tuple(slice(low, high) for low, high in zip(self.lows[axis + 1 :], self.highs[axis + 1 :], strict=True))
        part = np.ascontiguousarray(rows[(slice(first - start, last - start), *inner)])[(None,) * axis]
        at = (*run.lead, first - run.source + run.target, *self.lows[axis + 1 :])
        starts = np.subtract(at, self.lows, dtype=np.int32)
        self.buffer = _write(self.buffer, *jax.device_put((part, starts), self.place))


class Leaf:
    """The shards of one array, which `filled` returns when all are."""

    def __init__(self, struct: jax.ShapeDtypeStruct) -> None:
        self._struct = struct
        self._sharding: Any = struct.sharding or jax.numpy.zeros(()).sharding
        indices: dict[Any, tuple[slice, ...] | None] = self._sharding.addressable_devices_indices_map(struct.shape)
        self._shards = [_Shard(SingleDeviceSharding(device), index or (), struct) for device, index in indices.items()]

    @property
    def dtype(self) -> np.dtype:
        """Of its values."""
        return np.dtype(self._struct.dtype)

    def needs(self, runs: Sequence[Run], start: int, stop: int) -> bool:
        """Whether any local shard holds part of the source rows `[start, stop)`."""
        return any(first < last for first, last in self._overlaps(runs, start, stop))

    def fill(self, runs: Sequence[Run], start: int, rows: np.ndarray) -> None:
        """Writes the source rows from `start` on to the places of the runs; returns when they are written."""
        for shard in self._shards:
            for run in runs:
                shard.fill(run, start, rows)
        jax.block_until_ready([shard.buffer for shard in self._shards])

    def filled(self) -> Shaped[Array, "..."]:
        """The filled leaf."""
        buffers = [shard.buffer for shard in self._shards]
        return jax.make_array_from_single_device_arrays(
            self._struct.shape, self._sharding, buffers, dtype=self._struct.dtype
        )

    def _overlaps(self, runs: Sequence[Run], start: int, stop: int) -> Iterator[tuple[int, int]]:
        return (shard.overlap(run, start, stop) for shard in self._shards for run in runs)


class LeafTuple:
    """A `Leaf` for each layer, filled by runs that lead with the layer's index."""

    def __init__(self, structs: tuple[jax.ShapeDtypeStruct, ...]) -> None:
        self._layers = [Leaf(struct) for struct in structs]

    @property
    def dtype(self) -> np.dtype:
        return self._layers[0].dtype

    def needs(self, runs: Sequence[Run], start: int, stop: int) -> bool:
        return any(layer.needs(own, start, stop) for layer, own in self._by_layer(runs))

    def fill(self, runs: Sequence[Run], start: int, rows: np.ndarray) -> None:
        for layer, own in self._by_layer(runs):
            layer.fill(own, start, rows)

    def filled(self) -> tuple[Shaped[Array, "..."], ...]:
        return tuple(layer.filled() for layer in self._layers)

    def _by_layer(self, runs: Sequence[Run]) -> Iterator[tuple[Leaf, list[Run]]]:
        for index in sorted({run.lead[0] for run in runs}):
            yield self._layers[index], [replace(run, lead=run.lead[1:]) for run in runs if run.lead[0] == index]
