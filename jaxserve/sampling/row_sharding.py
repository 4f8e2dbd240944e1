"""Device: `shard_rows`, per-row functions with the rows divided over the mesh."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jaxserve.core.hardware.mesh import num_shards, spec


def shard_rows(mesh: Mesh, function: Callable[..., Any], rows: Any, *replicated: Any) -> Any:
    """function(rows, *replicated), where rows and results are trees of arrays with one entry per row.

    The head leaves each row's logits divided over the devices; drawing needs a row's whole vocabulary on one device. So
    the devices exchange parts (an all-to-all of S·V/TP numbers) and draw for S/TP rows each: no device holds all of
    S x V, conditions and loops inside are per device, and a row's result is the same as on one device.
    """
    num_rows = len(jax.tree.leaves(rows)[0])
    missing = -num_rows % num_shards(mesh, "rows")

    def pad(a: jax.Array) -> jax.Array:
        return jnp.pad(a, [(0, missing)] + [(0, 0)] * (a.ndim - 1))

    def unpad(a: jax.Array) -> jax.Array:
        return a[:num_rows]

    divided, everywhere = spec("rows"), spec()
    sharded = jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(divided, *[everywhere] * len(replicated)),
        out_specs=divided,
        check_vma=False,
    )
    return jax.tree.map(unpad, sharded(jax.tree.map(pad, rows), *replicated))
