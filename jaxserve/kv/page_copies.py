"""Device: copies of pages and tokens within a sharded `KVState`, out of it and into it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Int

from jaxserve.kv.kv_state import PAGES_SPEC, KVState
from pallas_kernels.page_layouts import PageLayout
from pallas_kernels.page_ops import api

WHOLE = PartitionSpec()


def copy_pages(mesh: Mesh, kv: KVState, src: Int[Array, "C"], dst: Int[Array, "C"]) -> KVState:
    """Copy page src[i] to page dst[i]."""
    copy = _by_device(mesh, api.copy_pages, PAGES_SPEC, WHOLE, WHOLE)

    def of_array(array: jax.Array) -> jax.Array:
        return copy(array, src, dst)

    return jax.tree.map(of_array, kv)


def gather_pages(mesh: Mesh, kv: KVState, ids: Int[Array, "C"]) -> KVState:
    """These pages, sharded like the arrays they are from."""
    gather = _by_device(mesh, api.gather_pages, PAGES_SPEC, WHOLE)

    def of_array(array: jax.Array) -> jax.Array:
        return gather(array, ids)

    return jax.tree.map(of_array, kv)


def scatter_pages(mesh: Mesh, kv: KVState, ids: Int[Array, "C"], pages: KVState) -> KVState:
    """The arrays with `pages[:, i]` at page ids[i]."""
    scatter = _by_device(mesh, api.scatter_pages, PAGES_SPEC, WHOLE, PAGES_SPEC)

    def of_array(array: jax.Array, content: jax.Array) -> jax.Array:
        return scatter(array, ids, content)

    return jax.tree.map(of_array, kv, pages)


def move_tokens(mesh: Mesh, layout: PageLayout, kv: KVState, src: Int[Array, "N"], dst: Int[Array, "N"]) -> KVState:
    """Copy what slot src[i] holds to slot dst[i]; all are read before any is written.

    Extra arrays have tokens in their pages as the pool has them: they are KV of drafts.
    """
    move = _by_device(mesh, partial(api.move_rows, layout=layout), PAGES_SPEC, WHOLE, WHOLE)

    def of_array(array: jax.Array) -> jax.Array:
        return move(array, src, dst)

    return jax.tree.map(of_array, kv)


def _by_device(mesh: Mesh, op: Callable[..., Any], *specs: PartitionSpec) -> Callable[..., Any]:
    """Each device handles its own heads (the compiler does not partition a kernel)."""
    return jax.shard_map(op, mesh=mesh, in_specs=specs, out_specs=PAGES_SPEC, check_vma=False)
