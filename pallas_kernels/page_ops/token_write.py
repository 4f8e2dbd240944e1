"""Device: `TokenWrite`: the operands of `api.write`, checked once and passed to a back end as one record."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num

from pallas_kernels.page_layouts import PageLayout
from pallas_kernels.page_ops.aligned_pieces import Pieces
from pallas_kernels.page_ops.pack_tokens import pack_tokens


@dataclass(frozen=True)
class TokenWrite:
    """Tokens begin <= t < end go to their slots in one layer of a pool. See `api.write` for the fields."""

    layer: Int[Array, ""]
    k: Float[Array, "T K H"]
    v: Float[Array, "T K H"]
    slots: Int[Array, "T"]
    begin: Int[Array, ""]
    end: Int[Array, ""]
    k_scale: Float[Array, "K"] | None
    v_scale: Float[Array, "K"] | None
    pieces: Pieces | None
    """Read by the TPU kernels only."""
    layout: PageLayout

    def packed(self, pool: jax.Array, padding: int = 0) -> Num[Array, "T2 K packed"]:
        """The tokens as `pool` stores them, then `padding` more.

        Padded first, XLA packs, pads and transposes in one pass; padding packed tokens took 40 % more time.
        """
        k, v = (jnp.pad(x, ((0, padding), (0, 0), (0, 0))) if padding else x for x in (self.k, self.v))
        scales = {"k_scale": self.k_scale, "v_scale": self.v_scale}
        return pack_tokens(k, v, pool.shape[self.layout.packed_axis], pool.dtype, **scales, layout=self.layout)

    def is_written(self) -> Bool[Array, "T"]:
        token = jnp.arange(len(self.slots), dtype=jnp.int32)
        return (token >= self.begin) & (token < self.end)
