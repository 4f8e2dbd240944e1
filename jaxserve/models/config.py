"""Host: `ModelConfig`, everything that a model's shape and arithmetic depend on, and the table of its layers."""

import math
from dataclasses import dataclass

from jaxserve.core.errors import ConfigError
from jaxserve.core.kv_groups import KVGroups


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding (RoFormer, arXiv 2104.09864), halves rotated against each other.

    `factors`, one for each of the H/2 frequencies, divide the frequencies `base ** (-2i / H)`.
    """

    base: float
    factors: tuple[float, ...] | None = None

    def frequencies(self, head_dim: int) -> list[float]:
        plain = [self.base ** (-2 * i / head_dim) for i in range(head_dim // 2)]
        if self.factors is None:
            return plain
        return [f / factor for f, factor in zip(plain, self.factors, strict=True)]


def llama3_factors(
    base: float, head_dim: int, factor: float, low_freq_factor: float, high_freq_factor: float, original_len: int
) -> tuple[float, ...]:
    """Llama 3.1's scaling: long waves are slowed by `factor`, short ones kept, those between interpolated."""
    factors = []
    for f in Rope(base).frequencies(head_dim):
        turns = original_len * f / (2 * math.pi)
        smooth = min(1.0, max(0.0, (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)))
        factors.append(1.0 / ((1.0 - smooth) / factor + smooth))
    return tuple(factors)


@dataclass(frozen=True, slots=True)
class LayerKind:
    """What distinguishes layers of one kind: layers of a kind share one stacked parameter tree."""

    name: str
    rope: Rope
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """A row of the layer table: where a layer's weights and its pages are."""

    kind: int
    index_in_kind: int
    group: int  # KV group, counted within the kind
    index_in_group: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder-only transformer. Sizes as DESIGN's shape letters name them; `layer_kinds[l]` indexes `kinds`."""

    family: str
    vocab_size: int
    num_layers: int
    d_model: int
    d_mlp: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position: int
    kinds: tuple[LayerKind, ...]
    layer_kinds: tuple[int, ...]
    norm_eps: float = 1e-6
    is_tied: bool = False
    activation: str = "silu"
    embed_scale: float = 1.0
    attention_scale: float | None = None  # None: head_dim ** -0.5
    has_qk_norm: bool = False
    has_post_norms: bool = False
    attention_softcap: float | None = None
    final_softcap: float | None = None
    dtype: str | None = None  # as the checkpoint declares it
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.layer_kinds) != self.num_layers:
            raise ConfigError(f"{self.num_layers} layers but {len(self.layer_kinds)} layer kinds")
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}")
        if self.head_dim % 2:
            raise ConfigError(f"head_dim {self.head_dim} is odd: rotary embedding rotates pairs")
        for factors in (kind.rope.factors for kind in self.kinds if kind.rope.factors is not None):
            if len(factors) != self.head_dim // 2 or not all(0 < f < math.inf for f in factors):
                raise ConfigError(f"rope needs {self.head_dim // 2} positive factors, one for each frequency")

    @property
    def scale(self) -> float:
        return self.head_dim**-0.5 if self.attention_scale is None else self.attention_scale

    @property
    def layers_per_group(self) -> int:
        """Layers in every KV group: as many as the rarest kind has, so that no group is mostly padding."""
        return min(self.layer_kinds.count(k) for k in range(len(self.kinds)))

    def num_groups(self, kind: int) -> int:
        return -(-self.layer_kinds.count(kind) // self.layers_per_group)

    @property
    def layer_table(self) -> tuple[Layer, ...]:
        seen = [0] * len(self.kinds)
        table = []
        for kind in self.layer_kinds:
            group, index = divmod(seen[kind], self.layers_per_group)
            table.append(Layer(kind, seen[kind], group, index))
            seen[kind] += 1
        return tuple(table)

    def kv_groups(self, page_size: int) -> KVGroups:
        """KV groups in order: all groups of kind 0, then of kind 1, …"""
        windows = [kind.window for k, kind in enumerate(self.kinds) for _ in range(self.num_groups(k))]
        return KVGroups(tuple(windows), page_size)
