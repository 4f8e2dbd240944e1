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
    items: Int[Array, "GI"]
    """GROUP items of each group: place · 2^PLACE_SHIFT + rank block, those of a tile in this order, or GAP."""
    first_groups: Int[Array, "tiles1"]
    """The groups of tile i are [first_groups[i], first_groups[i + 1])."""


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
    # Item i of a tile is that of the first place whose items end behind it.
    number = jnp.arange(max_items, dtype=jnp.int32)[None]
    place = (ends[:, None] <= number[:, :, None]).sum(2, dtype=jnp.int32)
    first = jnp.take_along_axis(ends - counts, jnp.minimum(place, num_places - 2), 1)
    is_item = number < ends[:, -1:]
    items = jnp.where(is_item, ((place + 1) << PLACE_SHIFT) + number - first, GAP)
    num_groups = -(-ends[:, -1] // GROUP)
    first_groups = jnp.pad(jnp.cumsum(num_groups, dtype=jnp.int32), (1, 0))
    if num_tiles > 1:  # without the groups of gaps that follow each tile's
        groups = jnp.arange(num_tiles * max_items // GROUP, dtype=jnp.int32)
        tile = jnp.minimum((first_groups[None, 1:] <= groups[:, None]).sum(1, dtype=jnp.int32), num_tiles - 1)
        own = jnp.minimum(groups - first_groups[tile], max_items // GROUP - 1)
        items = items.reshape(num_tiles, -1, GROUP)[tile, own]
    return AdapterGroups(places[None], items.reshape(-1), first_groups)
