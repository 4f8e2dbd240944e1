"""Device: `looked_up`: values of codes by selects, which every compiler and every vector unit has."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer


def looked_up(codes: Integer[Array, "*shape"], values: Sequence[float], dtype: Any) -> Float[Array, "*shape"]:
    """values[code], of a power of two of them: each bit of the codes, from the lowest one on, halves the choice."""
    found: list[jax.Array] = [jnp.asarray(value, dtype) for value in values]
    for bit in range(len(values).bit_length() - 1):
        is_set = (codes & jnp.asarray(1 << bit, codes.dtype)) != 0
        found = [jnp.where(is_set, found[i + 1], found[i]) for i in range(0, len(found), 2)]
    return found[0]
