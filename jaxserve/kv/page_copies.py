"""Device: whole pages copied within a pool that is divided over a mesh, out of it and into it."""

import jax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from jaxserve.kv.pool_layout import POOL_SPEC
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


def gather_pages(
    mesh: Mesh, pool: Float[Array, "Lg P K page W2"], ids: Int[Array, "C"]
) -> Float[Array, "Lg C K page W2"]:
    """These pages, divided as the pool is."""
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
    """The pool with these pages in these places."""
    whole = PartitionSpec()
    scatter = jax.shard_map(
        api.scatter_pages, mesh=mesh, in_specs=(POOL_SPEC, whole, POOL_SPEC), out_specs=POOL_SPEC, check_vma=False
    )
    return scatter(pool, ids, pages)
