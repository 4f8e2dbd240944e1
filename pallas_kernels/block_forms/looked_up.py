"""Device: `looked_up`: values of codes by selects, which every compiler and every vector unit has."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Integer, Num


def looked_up(codes: Integer[Array, "*shape"], values: Sequence[float | int], dtype: Any) -> Num[Array, "*shape"]:
    """values[code], of a power of two of them; higher bits of the codes are ignored. Each bit halves the choice, in an
    order in which few numbers are waiting."""
    are_set = [(codes & jnp.asarray(1 << bit, codes.dtype)) != 0 for bit in range(len(values).bit_length() - 1)]

    def chosen(first: int, bit: int) -> jax.Array:
        if bit < 0:
            return jnp.asarray(values[first], dtype)
        low, high = (chosen(start, bit - 1) for start in (first, first + 2**bit))
        return jnp.where(are_set[bit], high, low)

    return chosen(0, len(are_set) - 1)
