"""Device: the KV of a draft tree's accepted path, moved to where decoding would have written it.

nodes of a row, by KV index    0 1 2 3 4 5       accepted: 0 2 5
after the move                 0 2 5 . . .       the row's length is now 3 more; what lies behind is overwritten
"""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Int32

from jaxserve.kv.kv_state import KVState
from jaxserve.kv.page_copies import move_tokens
from pallas_kernels.page_layouts import PageLayout


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
    index = jnp.arange(nodes.shape[1], dtype=jnp.int32)[None]
    is_moved = (index < num_kept[:, None]) & (nodes != index)
    sources = jnp.take_along_axis(slots, jnp.broadcast_to(nodes[None], slots.shape), axis=2)
    # Slot 0 is in the scratch page, which takes what is not moved.
    src, dst = (jnp.where(is_moved[None], places, 0)[:, :, 1:].reshape(-1) for places in (sources, slots))
    return move_tokens(mesh, layout, kv, src, dst)
