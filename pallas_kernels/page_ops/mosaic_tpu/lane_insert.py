"""Device: insertion of tokens, which lie on lanes, at other lanes of a tile in a TPU's registers.

Lanes are rotated in 32-bit words. A word holds one lane's numbers of 1, 2 or 4 neighboring rows, so narrow types are
rotated bit for bit, without conversion, at a fraction of float32's cost.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from pallas_kernels.kernel_types import Scalar
from pallas_kernels.page_layouts import NUM_LANES


def insert_columns(old: jax.Array, new: Sequence[jax.Array], first: Scalar, offset: Scalar, count: Scalar) -> jax.Array:
    """`old` [rows, 128] with its lanes [offset, offset + count) replaced by `count` lanes of `new`, from `first` on.

    new: one tile [rows, 128], or two that follow each other when the lanes may reach into the second.
    """
    lane = lax.broadcasted_iota(jnp.int32, (1, NUM_LANES), 1)
    source = lane - offset + first  # negative where nothing is replaced
    shift = lax.rem(offset - first + NUM_LANES, NUM_LANES)
    rotated = [pltpu.roll(to_words(tile), shift, 1) for tile in new]
    words = rotated[0]
    if len(rotated) > 1:
        words = jnp.where(jnp.broadcast_to(source < NUM_LANES, words.shape), words, rotated[1])
    is_new = (lane >= offset) & (lane < offset + count)
    words = jnp.where(jnp.broadcast_to(is_new, words.shape), words, to_words(old))
    return from_words(words, old.dtype)


def to_words(x: jax.Array) -> jax.Array:
    """[rows, lanes] of any type as int32 [rows · itemsize / 4, lanes]."""
    return pltpu.bitcast(x, jnp.int32)


def from_words(words: jax.Array, dtype: Any) -> jax.Array:
    """The inverse of `to_words`."""
    return pltpu.bitcast(words, dtype)
