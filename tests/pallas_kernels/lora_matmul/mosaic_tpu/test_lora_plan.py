"""`plan` lists each rank block that a tile of tokens needs once, in groups without gaps but at their ends."""

from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pallas_kernels.lora_matmul import api
from pallas_kernels.lora_matmul.lora_batch import LoraBatch
from pallas_kernels.lora_matmul.mosaic_tpu.adapter_groups import GAP, GROUP, PLACE_SHIFT, TILE


def random_batch(rng: np.random.Generator, num_tokens: int, num_adapters: int) -> LoraBatch:
    """Adapters have 0 to 5 rank blocks; one in four tokens has none."""
    places = rng.integers(1, num_adapters + 1, num_tokens) * (rng.random(num_tokens) < 0.75)
    num_blocks = rng.integers(0, 6, num_adapters + 1)
    num_blocks[0] = 0
    has_block = np.arange(5)[None] < num_blocks[:, None]
    tables = np.broadcast_to(has_block[:, :, None, None], (num_adapters + 1, 5, 1, 3))
    return LoraBatch(jnp.asarray(places, jnp.int32), jnp.asarray(tables, jnp.int32))


def listed(batch: LoraBatch) -> list[list[tuple[int, int]]]:
    """(place, rank block) of the items of each tile."""
    plan = jax.jit(api.plan, static_argnames="backend")(batch, backend="mosaic_tpu").plan
    first, items = np.asarray(plan.first_groups), np.asarray(plan.items).reshape(-1, GROUP)
    found = []
    for begin, end in pairwise(first.tolist()):
        of_tile = items[begin:end].reshape(-1)
        num_items = int((of_tile != GAP).sum())
        assert (of_tile[num_items:] == GAP).all()
        assert end - begin == -(-num_items // GROUP)
        found.append([divmod(item, 2**PLACE_SHIFT) for item in of_tile[:num_items].tolist()])
    return found


def needed(batch: LoraBatch) -> list[list[tuple[int, int]]]:
    places, num_blocks = np.asarray(batch.places), np.asarray(batch.num_blocks)
    tiles = [places[at : at + TILE] for at in range(0, len(places), TILE)]
    return [[(p, b) for p in sorted(set(tile.tolist()) - {0}) for b in range(int(num_blocks[p]))] for tile in tiles]


@pytest.mark.parametrize(
    ("num_tokens", "num_adapters"), [(1, 1), (8, 3), (64, 64), (128, 20), (129, 2), (500, 40), (513, 200)]
)
def test_each_tile_has_each_rank_block_of_its_adapters_once(num_tokens, num_adapters):
    batch = random_batch(np.random.default_rng(num_tokens), num_tokens, num_adapters)
    assert listed(batch) == needed(batch)


def test_without_adapters_there_are_no_groups():
    batch = random_batch(np.random.default_rng(0), 300, 4)
    assert listed(replace(batch, places=jnp.zeros(300, jnp.int32))) == [[], [], []]
