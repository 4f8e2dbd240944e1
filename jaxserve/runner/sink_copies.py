"""Device: `copy_sinks`: a page with copies of the sinks, and behind them the rest of the page that follows.

    sink page   [ s0 s1 | … ]       the sink tokens as first written: keys at positions 0 and 1
    rest page   [ …… | 6  7 ]       the next one of the sequence's pages, of which the beginning is dropped
    own page    [ s0 s1 | 6  7 ]    keys of the sinks rotated to `num_dropped` and one more

Attention sees the distance of two tokens only, so the sinks' keys alone are rotated: the tokens behind them keep their
positions, and each query has the sinks as near as if the dropped tokens had never been (StreamingLLM, arXiv 2309.17453,
section 3.2). They are always rotated from what was first written: rounding errors do not add up.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int32

from jaxserve.kv.kv_state import KVState
from jaxserve.kv.page_copies import gather_pages, scatter_pages
from jaxserve.models.config.layer_kind import GroupedAttention
from jaxserve.models.rotary import rotate
from pallas_kernels.page_layouts import PageLayout

MAX_COPIES = 4  # of a kind in one call: with all layers of Llama 3 8B a page of 64 tokens has 8 MB


class SinkCopies(NamedTuple):
    """Pages of one kind of layers; pairs of page 0 are padding."""

    sink_pages: Int32[Array, "C"]
    rest_pages: Int32[Array, "C"]
    own_pages: Int32[Array, "C"]
    num_dropped: Int32[Array, "C"]


@jax.named_scope("copy_sinks")
def copy_sinks(
    mesh: Mesh,
    layout: PageLayout,
    num_sinks: int,
    kinds: Sequence[tuple[GroupedAttention, SinkCopies]],
    kv: KVState,
) -> KVState:
    """The pages with the copies of all kinds whose layers have full attention."""
    assert not kv.extra, "what an extra array holds of a position is not known here"
    for attention, copies in kinds:
        sinks = layout.by_position(gather_pages(mesh, kv, copies.sink_pages).pool)
        rest = layout.by_position(gather_pages(mesh, kv, copies.rest_pages).pool)
        moved = _rotated(attention, sinks[..., :num_sinks, :], copies.num_dropped)
        own = layout.by_position(jnp.concatenate([moved, rest[..., num_sinks:, :]], axis=-2))  # which undoes itself
        kv = scatter_pages(mesh, kv, copies.own_pages, KVState(own))
    return kv


def _rotated(
    attention: GroupedAttention, packed: Float[Array, "Lg C K n W2"], num_dropped: Int32[Array, "C"]
) -> Float[Array, "Lg C K n W2"]:
    """Packed tokens with their keys rotated by so many positions."""
    frequencies = jnp.array(attention.rope.frequencies(attention.head_dim), jnp.float32)
    angles = num_dropped.astype(jnp.float32)[:, None] * frequencies[None]
    keys, others = jnp.split(packed, [attention.head_dim], axis=-1)
    by_copy = jnp.moveaxis(keys, 1, 0)  # [C, Lg, K, n, H]
    flat = by_copy.reshape(len(num_dropped), -1, attention.head_dim)
    moved = jnp.moveaxis(rotate(flat, jnp.cos(angles), jnp.sin(angles)).reshape(by_copy.shape), 0, 1)
    return jnp.concatenate([moved, others], axis=-1)
