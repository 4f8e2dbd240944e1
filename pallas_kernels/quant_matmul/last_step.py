"""Device: rows of inputs that are no whole steps: the last step ends with its row, and what it shares with the one
before meets zeros. So no step reads past the end of a row.

    576 inputs in steps of 256     step 0: 0 to 255    step 1: 256 to 511    step 2: 320 to 575
    x                              as they are         as they are           192 zeros, then 512 to 575
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Shaped

from pallas_kernels.kernel_types import Scalar


def in_steps(x: Shaped[Array, "N I"], inputs: int) -> Shaped[Array, "N K"]:
    """The inputs of all steps, one after the other."""
    rest = x.shape[1] % inputs
    if not rest:
        return x
    shared = jnp.zeros((len(x), inputs - rest), x.dtype)
    return jnp.concatenate([x[:, :-rest], shared, x[:, -rest:]], axis=1)


def step_start(step: Scalar, size: int, total: int) -> jax.Array:
    """Of a step's `size` values in a row of `total`, which stand for its inputs."""
    start = step * size
    return start if total % size == 0 else jnp.minimum(start, total - size)
