"""Device: the KV of a draft tree's accepted path, moved to where decoding would have written it.

nodes of a row, by KV index    0 1 2 3 4 5       accepted: 0 2 5
after the move                 0 2 5 . . .       the row's length is now 3 more; what lies behind is overwritten
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Int32

from jaxserve.kv.kv_state import PAGES_SPEC, KVState
from pallas_kernels.page_layouts import PageLayout
from pallas_kernels.page_ops.api import move_rows

WHOLE = PartitionSpec()


@jax.named_scope("compact")
def compact_path(
    mesh: Mesh,
    layout: PageLayout,
    kv: KVState,
    slots: Int32[Array, "G S W"],
    nodes: Int32[Array, "S W"],
    num_kept: Int32[Array, "S"],
) -> KVState:
    """Move the KV of each row's first `num_kept` of `nodes` to its first nodes' slots, in every KV group.

    slots: of the rows' nodes; rows of which no node is kept may have any.
    """
    assert not kv.riders, "how a rider holds tokens is not known here"
    index = jnp.arange(nodes.shape[1], dtype=jnp.int32)[None]
    is_moved = (index < num_kept[:, None]) & (nodes != index)
    sources = jnp.take_along_axis(slots, jnp.broadcast_to(nodes[None], slots.shape), axis=2)
    move = jax.shard_map(
        partial(move_rows, layout=layout),
        mesh=mesh,
        in_specs=(PAGES_SPEC, WHOLE, WHOLE),
        out_specs=PAGES_SPEC,
        check_vma=False,
    )
    # Slot 0 is in the scratch page, which takes what is not moved.
    src, dst = (jnp.where(is_moved[None], places, 0)[:, :, 1:].reshape(-1) for places in (sources, slots))
    return replace(kv, pool=move(kv.pool, src, dst))
