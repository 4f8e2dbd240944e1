"""Host: `LayerKind`, what layers of one kind compute: their attention and their MLP."""

from dataclasses import dataclass

from jaxserve.core.errors import ConfigError
from jaxserve.models.config.rope import Rope


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """Attention with grouped queries (GQA, arXiv 2305.13245) and rotary embedding.

    window: a token sees so many positions, its own included; None: the whole context. query_scale: factor of the
    scores; None: head_dim ** -0.5. softcap: scores are capped at this size by tanh. has_bias: of the projections to
    queries, keys and values. has_qk_norm: each head's query and key pass an RMSNorm.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: Rope
    window: int | None = None
    query_scale: float | None = None
    softcap: float | None = None
    has_bias: bool = False
    has_qk_norm: bool = False

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}")
        if self.head_dim % 2:
            raise ConfigError(f"head_dim {self.head_dim} is odd: rotary embedding rotates pairs")
        self.rope.check(self.head_dim)

    @property
    def scale(self) -> float:
        return self.head_dim**-0.5 if self.query_scale is None else self.query_scale


@dataclass(frozen=True, slots=True)
class GatedMlp:
    """An MLP with a gate (GLU variants, arXiv 2002.05202); width: F, of the gate."""

    width: int
    activation: str = "silu"


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers with the same attention and MLP. has_post_norms: an RMSNorm after each of the two, as before each."""

    name: str
    attention: GroupedAttention
    mlp: GatedMlp
    has_post_norms: bool = False
