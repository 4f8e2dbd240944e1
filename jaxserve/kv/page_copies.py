"""Device: copies of whole pages within a sharded pool, out of it and into it."""

import jax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from jaxserve.kv.pool_layout import POOL_SPEC
from pallas_kernels.page_ops import api


def copy_pages(
    mesh: Mesh, pool: Float[Array, "Lg P K page W2"], src: Int[Array, "C"], dst: Int[Array, "C"]
) -> Float[Array, "Lg P K page W2"]:
    """Copy page src[i] to page dst[i]; each device copies its own heads (the compiler does not partition a kernel)."""
    whole = PartitionSpec()
    copy = jax.shard_map(
        api.copy_pages, mesh=mesh, in_specs=(POOL_SPEC, whole, whole), out_specs=POOL_SPEC, check_vma=False
    )
    return copy(pool, src, dst)


def gather_pages(
    mesh: Mesh, pool: Float[Array, "Lg P K page W2"], ids: Int[Array, "C"]
) -> Float[Array, "Lg C K page W2"]:
    """These pages, sharded like the pool."""
    gather = jax.shard_map(
        api.gather_pages, mesh=mesh, in_specs=(POOL_SPEC, PartitionSpec()), out_specs=POOL_SPEC, check_vma=False
    )
    return gather(pool, ids)


def scatter_pages(
    mesh: Mesh,
    pool: Float[Array, "Lg P K page W2"],
    ids: Int[Array, "C"],
    pages: Float[Array, "Lg C K page W2"],
) -> Float[Array, "Lg P K page W2"]:
    """The pool with `pages[:, i]` at page ids[i]."""
    whole = PartitionSpec()
    scatter = jax.shard_map(
        api.scatter_pages, mesh=mesh, in_specs=(POOL_SPEC, whole, POOL_SPEC), out_specs=POOL_SPEC, check_vma=False
    )
    return scatter(pool, ids, pages)
