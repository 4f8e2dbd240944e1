"""Device: layers shared by all families: RMSNorm, rotary embedding, gated MLP."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from jaxserve.models.config.model_config import Rope
from jaxserve.models.linear import Linear
from pallas_kernels.page_layouts import ROWS, PageLayout
from pallas_kernels.paged_attention.api import paged_attention, plan
from pallas_kernels.paged_attention.batch_meta import AttentionMeta


@dataclass(frozen=True, slots=True)
class Context:
    """The static arguments of layers.

    attention: the attention op, `paged_attention` or another of the same signature. plan: computes, once per step, what
    the op needs for a kind of layers. page_layout: order of a page's axes in the KV pool. tile_rows: tokens of a tile
    (`each_tile`) in everything but attention; None: all tokens at once.
    """

    mesh: Mesh
    attention_backend: str
    attention: Callable[..., tuple[jax.Array, jax.Array]] = paged_attention
    plan: Callable[..., AttentionMeta] = plan
    page_layout: PageLayout = ROWS
    tile_rows: int | None = None


def rms_norm(x: Float[Array, "*b D"], weight: Float[Array, "D"], eps: float) -> Float[Array, "*b D"]:
    """RMSNorm (arXiv 1910.07467) in float32."""
    y = x.astype(jnp.float32)
    y = y * lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + eps)
    return (y * lax.expand_dims(weight, range(y.ndim - 1))).astype(x.dtype)


@jax.named_scope("rope")
def rope_tables(
    rope: Rope, head_dim: int, positions: Int[Array, "T"]
) -> tuple[Float[Array, "T R"], Float[Array, "T R"]]:
    """Cosines and sines of each token's angles, float32, once a step for each kind; R: half the rotated values."""
    frequencies = jnp.array(rope.frequencies(head_dim), jnp.float32)
    angles = positions.astype(jnp.float32)[:, None] * frequencies[None, :]
    return jnp.cos(angles) * rope.attention_factor, jnp.sin(angles) * rope.attention_factor


@jax.named_scope("rope")
def rotate(x: Float[Array, "T A H"], cos: Float[Array, "T R"], sin: Float[Array, "T R"]) -> Float[Array, "T A H"]:
    """Rotary embedding (arXiv 2104.09864) of the head's first 2R values, first half with second; the rest stays."""
    r = cos.shape[-1]
    a, b, rest = jnp.split(x.astype(jnp.float32), (r, 2 * r), axis=-1)
    c, s = cos[:, None, :], sin[:, None, :]
    return jnp.concatenate([a * c - b * s, b * c + a * s, rest], axis=-1).astype(x.dtype)


@jax.named_scope("mlp")
def gated_mlp(x: Float[Array, "T D"], gate_up: Linear, down: Linear, activation: str) -> Float[Array, "T D"]:
    """down(act(gate x) * up x) (GLU variants, arXiv 2002.05202); gate_up: [2, F, D]."""
    # One product: of a layer's weights that two products read, XLA on TPU7x and on GPU makes a copy first.
    both = gate_up(x)
    return down(ACTIVATIONS[activation](both[:, 0]) * both[:, 1])


def _silu(x: jax.Array) -> jax.Array:
    return jax.nn.silu(x.astype(jnp.float32)).astype(x.dtype)


def _gelu_tanh(x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x.astype(jnp.float32), approximate=True).astype(x.dtype)


ACTIVATIONS = {"silu": _silu, "gelu_tanh": _gelu_tanh}
