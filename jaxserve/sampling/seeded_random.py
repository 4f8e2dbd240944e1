"""Device: random numbers as pure functions of (seed, sample index, position, purpose).

Threefry (Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2, 3") is counter based, so a row's numbers are
the same alone, permuted or in another bucket. JAX's `rbg` under `vmap` is not: never use it here.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int32, UInt32

from jaxserve.sampling.sampling_batch import SamplingBatch

# The purpose of drawing a token; numbers drawn at one position for another purpose need another value.
TOKEN = 0
ACCEPTANCE = 1  # of a draft
DRAFT = 2  # drawn apart from the token that confirms it
RESIDUAL = 3  # a token in place of a draft that is rejected


def row_words(batch: SamplingBatch, positions: Int32[Array, " S"], purpose: int) -> UInt32[Array, "S 2"]:
    """Two random words per row.

    The seed's two words are the key, and each fold encrypts one word under the key before it. The last fold's two words
    are the numbers: no configuration of `jax.random` (partitionable or not) changes them.
    """

    def row_bits(high: Array, low: Array, sample_index: Array, position: Array) -> Array:
        key: Array = jax.random.wrap_key_data(jnp.stack([high, low]), impl="threefry2x32")
        for word in (sample_index, position, jnp.uint32(purpose)):
            key = jax.random.fold_in(key, word)
        return jax.random.key_data(key)

    return jax.vmap(row_bits)(
        batch.seed_high, batch.seed_low, batch.sample_index.astype(jnp.uint32), positions.astype(jnp.uint32)
    )


def next_words(words: UInt32[Array, "S 2"]) -> UInt32[Array, "S 2"]:
    """Two more words per row: `words` is the key that encrypts a constant."""

    def fold(key: Array) -> Array:
        return jax.random.fold_in(key, jnp.uint32(0))

    keys: Array = jax.random.wrap_key_data(words, impl="threefry2x32")
    return jax.random.key_data(jax.vmap(fold)(keys))


def uniforms(words: UInt32[Array, "S 2"]) -> tuple[Float[Array, " S"], Float[Array, " S"]]:
    """Two independent numbers per row, uniform on the multiples of 2**-24 in [0, 1)."""
    numbers = (words >> 8).astype(jnp.float32) * jnp.float32(2**-24)
    return numbers[:, 0], numbers[:, 1]
