"""Device: `boundary`, where a falling function of floats turns negative: bisection of all floats, at most 32 steps."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int32, UInt32

# The ranks of -inf, and of the value after +inf, in the order of all floats.
LOWEST = np.uint32(0x007FFFFF)
HIGHEST = np.uint32(0xFF800001)


def boundary(
    excess: Callable[[Float[Array, ""]], Int32[Array, ""]], is_wanted: Bool[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The largest float whose excess is not negative, and the next one; -inf and its next one if unwanted.

    excess: falls with growing floats, and is not negative for -inf. A float whose excess is 0 ends the search: it is
    returned as the first one, though it need not be the largest.
    """

    def is_open(state: tuple[Array, Array, Array]) -> Array:
        low, high, low_excess = state
        return (high - low > 1) & (low_excess != 0)

    def halve(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        low, high, low_excess = state
        middle = low + (high - low) // 2
        found = excess(_from_rank(middle))
        return (
            jnp.where(found >= 0, middle, low),
            jnp.where(found >= 0, high, middle),
            jnp.where(found >= 0, found, low_excess),
        )

    start = (jnp.asarray(LOWEST), jnp.where(is_wanted, HIGHEST, LOWEST + 1), jnp.int32(1))
    low, high, _ = lax.while_loop(is_open, halve, start)
    return _from_rank(low), _from_rank(high)


def _from_rank(rank: UInt32[Array, ""]) -> Float[Array, ""]:
    """The float of a rank in the order of all floats; ranks from 2**31 on are positive floats."""
    positive = lax.bitcast_convert_type(rank ^ np.uint32(1 << 31), jnp.float32)
    return jnp.where(rank >> 31 == 1, positive, lax.bitcast_convert_type(~rank, jnp.float32))
