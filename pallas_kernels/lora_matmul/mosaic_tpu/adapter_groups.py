"""Device: `AdapterGroups`: the rank blocks that each tile of a batch's tokens needs, in groups that a TPU multiplies
together.

    tile of tokens    0                                          1
    its items         (place 1, block 0) (1, 1) (4, 0) … 11      (2, 0)
    groups of 8       items 0 … 7 | items 8 … 10 and 5 gaps      item 0 and 7 gaps

The groups of all tiles are one list, so that the pages of the next group can be copied whatever tile it belongs to.
"""

from dataclasses import dataclass
from typing import no_type_check

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from pallas_kernels.lora_matmul.lora_batch import LoraBatch

TILE = 128
"""Tokens of a tile: lanes. A rank block is read once for each tile that has a token of its adapter."""
GROUP = 8
"""Items of a group: with 16 rows each, the height of a matrix unit."""
GAP = -1
PLACE_SHIFT = 10
"""Bits of a rank block's number in an item."""


@jax.tree_util.register_dataclass
@no_type_check  # jax rebuilds it with leaves that are not arrays
@dataclass(frozen=True)
class AdapterGroups:
    """One batch's, for all sites and layers. All int32."""

    places: Int[Array, "1 tokens"]
    """Of the tokens, 0 up to a whole tile."""
    first_groups: Int[Array, "tiles1"]
    """The groups of tile i are [first_groups[i], first_groups[i + 1])."""
    positions: Int[Array, "G"]
    """Of each group in `items`, in which every tile has the same number of groups, empty ones last."""
    items: Int[Array, "GI"]
    """GROUP of each position: place · 2^PLACE_SHIFT + rank block, those of a tile in this order, or GAP."""


def plan_groups(batch: LoraBatch) -> AdapterGroups:
    """The groups of all tiles."""
    num_places, max_blocks = batch.tables.shape[:2]
    num_tiles = -(-len(batch.places) // TILE)
    places = jnp.pad(batch.places, (0, num_tiles * TILE - len(batch.places)))
    by_tile = places.reshape(num_tiles, TILE)
    is_present = (by_tile[:, :, None] == jnp.arange(1, num_places, dtype=jnp.int32)[None, None]).any(1)
    counts = jnp.where(is_present, batch.num_blocks[None, 1:], 0)
    ends = jnp.cumsum(counts, 1, dtype=jnp.int32)
    max_items = min(num_places - 1, TILE) * max_blocks
    max_items += -max_items % GROUP
    # Item i of a tile is that of the first place whose items end behind it. Sums, because gathers are slow on TPUs.
    number = jnp.arange(max_items, dtype=jnp.int32)[None]
    is_before = ends[:, None] <= number[:, :, None]
    place = is_before.sum(2, dtype=jnp.int32) + 1
    block = number - jnp.where(is_before, counts[:, None], 0).sum(2, dtype=jnp.int32)
    items = jnp.where(number < ends[:, -1:], (place << PLACE_SHIFT) + block, GAP)
    num_groups = -(-ends[:, -1] // GROUP)
    last_groups = jnp.cumsum(num_groups, dtype=jnp.int32)
    groups = jnp.arange(num_tiles * max_items // GROUP, dtype=jnp.int32)
    unused = max_items // GROUP - num_groups
    is_before = last_groups[None] <= groups[:, None]
    positions = groups + jnp.where(is_before, unused[None], 0).sum(1, dtype=jnp.int32)
    return AdapterGroups(places[None], jnp.pad(last_groups, (1, 0)), positions, items.reshape(-1))
