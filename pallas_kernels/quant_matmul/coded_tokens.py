"""Device: `code_tokens`: activations as codes of 8 bits, each token with a scale of its own.

x ≈ scale · (part 0 + part 1 / 254 + part 2 / 254²)        each part is what the parts before it have left
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from pallas_kernels.qtensor import LARGEST, Scheme

FINER = 2.0 * LARGEST
"""A part's scale over that of the next: half a step at most is left."""


def code_tokens(x: Float[Array, "T I"], num_parts: int, scheme: Scheme) -> tuple[Num[Array, "R I"], Float[Array, "T"]]:
    """Codes of tokens, R = num_parts · T, part after part, and scales, which are not finite where a value is not.

    num_parts: more than 1 of integers alone.
    """
    rest = x.astype(jnp.float32)
    scales = jnp.max(jnp.abs(rest), axis=1) / scheme.largest
    rest = rest / jnp.where(scales > 0, scales, 1.0)[:, None]
    if scheme.codes != "int8":
        return rest.astype(scheme.codes), scales
    parts: list[jax.Array] = []
    for _ in range(num_parts):
        parts.append(jnp.round(rest))
        rest = (rest - parts[-1]) * FINER
    return jnp.concatenate(parts).astype(jnp.int8), scales
