"""Device: what follows a product's sums in float32, in the kernel or, with splits, in an XLA fusion after it."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

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
