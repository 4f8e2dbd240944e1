"""Device: what follows a product's sums in float32, in the kernel or, with splits, in an XLA fusion after it."""

from collections.abc import Sequence
from functools import reduce
from operator import add

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pallas_kernels.matmul.activations import ACTIVATIONS
from pallas_kernels.matmul.matmul_spec import MatmulSpec


def finish(sums: Sequence[jax.Array], added: Sequence[jax.Array], spec: MatmulSpec) -> jax.Array:
    """The result, not rounded yet. added: bias and residual, of the shape of the sums."""
    y = sums[0]
    if spec.activation is not None:
        y = ACTIVATIONS[spec.activation](y) * sums[1]
    for x in added:
        y = y + x.astype(jnp.float32)
    return y


def finish_splits(y: Float[Array, "splits parts N O"], added: Sequence[jax.Array], spec: MatmulSpec) -> jax.Array:
    """The result of splits' sums, which are added in order, so that results repeat."""
    sums = list(reduce(add, y))
    return finish(sums, [jnp.broadcast_to(x, sums[0].shape) for x in added], spec)
