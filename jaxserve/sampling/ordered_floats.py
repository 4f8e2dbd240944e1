"""Device: `boundary`, where a property of floats ends, by bisection over all floats in their order: up to 32 steps."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, UInt32

# The ranks of -inf, and of the value after +inf, in the order of all floats.
LOWEST = np.uint32(0x007FFFFF)
HIGHEST = np.uint32(0xFF800001)


def boundary(
    is_low: Callable[[Float[Array, ""]], Bool[Array, ""]], is_wanted: Bool[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The largest float that is low, and the next one, the smallest that is not; -inf and its next one if unwanted.

    is_low: holds for -inf, and for every float below one for which it holds.
    """

    def halve(bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = low + (high - low) // 2
        is_reached = is_low(_from_rank(middle))
        return jnp.where(is_reached, middle, low), jnp.where(is_reached, high, middle)

    bounds = (jnp.asarray(LOWEST), jnp.where(is_wanted, HIGHEST, LOWEST + 1))
    low, high = lax.while_loop(lambda bounds: bounds[1] - bounds[0] > 1, halve, bounds)
    return _from_rank(low), _from_rank(high)


def _from_rank(rank: UInt32[Array, ""]) -> Float[Array, ""]:
    """The float of a rank in the order of all floats; ranks from 2**31 on are positive floats."""
    positive = lax.bitcast_convert_type(rank ^ np.uint32(1 << 31), jnp.float32)
    return jnp.where(rank >> 31 == 1, positive, lax.bitcast_convert_type(~rank, jnp.float32))
