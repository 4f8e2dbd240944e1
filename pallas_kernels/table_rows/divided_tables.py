"""Device: `rows_of_divided`: a kernel's rows of tables whose rows are divided over the devices of the mesh, which XLA
cannot divide: each device takes those that it has, others are zeros there, and the devices add them.
"""

from collections.abc import Callable, Sequence
from typing import cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Int, Shaped

from pallas_kernels.dispatch import dividing_axes, num_dividing_devices

Rows = tuple[jax.Array, ...]
Take = Callable[[Sequence[jax.Array], jax.Array], Rows]
"""`api.table_rows` on one device."""


def rows_of_divided(take: Take, tables: Sequence[Shaped[Array, "V _"]], index: Int[Array, "T"]) -> Rows:
    """`take` on each device, of its part of the tables.

    Raises:
      NotImplementedError: devices would have different numbers of rows.
    """
    axes, num_devices = dividing_axes(), num_dividing_devices()
    if num_devices == 1:
        return take(tables, index)
    if len(tables[0]) % num_devices:
        raise NotImplementedError(f"{len(tables[0])} rows are no multiple of {num_devices} devices")

    def of_own(tables: Rows, index: jax.Array) -> Rows:
        num_rows = len(tables[0])
        place = index - lax.axis_index(axes).astype(index.dtype) * num_rows
        is_own = (place >= 0) & (place < num_rows)
        found = take(tables, jnp.where(is_own, place, 0))
        return tuple(_from_its_device(jnp.where(is_own[:, None], rows, 0), axes) for rows in found)

    in_specs = (PartitionSpec(axes), PartitionSpec())
    gather = jax.shard_map(of_own, in_specs=in_specs, out_specs=PartitionSpec(), check_vma=False)
    return gather(tuple(tables), index)


def _from_its_device(rows: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    """Rows that one device has, the others zeros; not every kind of device adds 8 and 16 bits."""
    return cast(jax.Array, lax.psum(rows.astype(jnp.int32), axes)).astype(rows.dtype)
