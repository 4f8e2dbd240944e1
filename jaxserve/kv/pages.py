"""Device: whole pages copied within a pool that is divided over a mesh."""

import jax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from jaxserve.kv.layout import POOL_SPEC
from pallas_kernels.page_ops import api


def copy_pages(
    mesh: Mesh, pool: Float[Array, "Lg P K page W2"], src: Int[Array, "C"], dst: Int[Array, "C"]
) -> Float[Array, "Lg P K page W2"]:
    """Page src[i] to page dst[i]; every device copies its own heads (a kernel is not divided by the compiler)."""
    whole = PartitionSpec()
    copy = jax.shard_map(
        api.copy_pages, mesh=mesh, in_specs=(POOL_SPEC, whole, whole), out_specs=POOL_SPEC, check_vma=False
    )
    return copy(pool, src, dst)
