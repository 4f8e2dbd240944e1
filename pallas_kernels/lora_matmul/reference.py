"""Device: `shrink` and `expand` by their plain formulas: the reference that every back end is compared with."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pallas_kernels.lora_matmul.adapter_layout import RANKS, Site
from pallas_kernels.lora_matmul.lora_batch import LoraBatch


def shrink(
    x: Float[Array, "T I"],
    pool: Float[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    pages: Int[Array, "A B n"],
    batch: LoraBatch,
    site: Site,
) -> Float[Array, "T parts R"]:
    """See `api.shrink`. Computed in float64 where `x` is (under `jax.enable_x64`), else in float32."""
    real = jnp.float64 if x.dtype == jnp.float64 else jnp.float32
    sums = jnp.zeros((len(x), len(site.parts), pages.shape[1] * RANKS), real)
    for place in range(1, pages.shape[0]):
        for block in range(pages.shape[1]):
            rows = _rows(pool, layer, pages[place, block])
            for i, part in enumerate(site.parts):
                a = _matrix(rows, part.first_a, part.num_inputs, site.width).astype(real)
                of_block = jnp.tensordot(x.astype(real), a, axes=(1, 1), precision="highest")
                has_block = (batch.places == place) & (pages[place, block, 0] > 0)
                ranks = slice(block * RANKS, (block + 1) * RANKS)
                sums = sums.at[:, i, ranks].set(jnp.where(has_block[:, None], of_block, sums[:, i, ranks]))
    return sums


def expand(
    sums: Float[Array, "T parts R"],
    pool: Float[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    pages: Int[Array, "A B n"],
    batch: LoraBatch,
    site: Site,
) -> tuple[Float[Array, "T _"], ...]:
    """See `api.expand`."""
    added = [jnp.zeros((len(sums), part.num_outputs), sums.dtype) for part in site.parts]
    for place in range(1, pages.shape[0]):
        for block in range(pages.shape[1]):
            rows = _rows(pool, layer, pages[place, block])
            has_block = (batch.places == place) & (pages[place, block, 0] > 0)
            for i, part in enumerate(site.parts):
                b = _matrix(rows, part.first_b, part.num_outputs, site.width).astype(sums.dtype)
                of_block = sums[:, i, block * RANKS : (block + 1) * RANKS]
                y = jnp.tensordot(of_block, b, axes=(1, 0), precision="highest")
                added[i] += jnp.where(has_block[:, None], y, 0)
    return tuple(added)


def _rows(pool: jax.Array, layer: jax.Array, pages: jax.Array) -> Float[Array, "rows W2"]:
    return pool[layer, pages].reshape(-1, pool.shape[-1])


def _matrix(rows: jax.Array, first: int, size: int, width: int) -> Float[Array, "8 _"]:
    """[RANKS, size]: its columns lie in blocks of `width`."""
    num_blocks = -(-size // width)
    blocks = rows[first : first + num_blocks * RANKS].reshape(num_blocks, RANKS, width)
    return blocks.swapaxes(0, 1).reshape(RANKS, -1)[:, :size]
