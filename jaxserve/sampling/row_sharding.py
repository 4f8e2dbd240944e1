"""Device: rows divided over the mesh, each device computing all of its share of them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from jaxserve.core.hardware.mesh import TENSOR


def by_rows(mesh: Mesh, function: Callable[..., Any], rows: Any, *whole: Any) -> Any:
    """function(rows, *whole), where rows and results are trees of arrays with one entry a row.

    The head leaves every device a part of each row's logits; drawing wants a row's whole vocabulary in one place. So
    devices exchange parts (an all-to-all of S·V/TP numbers) and draw for S/TP rows each: nothing of S x V is whole
    anywhere, conditions and loops inside are each device's own, and a row comes out as it does on one device.
    """
    num_rows = len(jax.tree.leaves(rows)[0])
    missing = -num_rows % mesh.shape[TENSOR]
    rows = jax.tree.map(lambda a: jnp.pad(a, [(0, missing)] + [(0, 0)] * (a.ndim - 1)), rows)
    divided, everywhere = PartitionSpec(TENSOR), PartitionSpec()
    share = jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(divided, *[everywhere] * len(whole)),
        out_specs=divided,
        check_vma=False,
    )
    return jax.tree.map(lambda a: a[:num_rows], share(rows, *whole))
