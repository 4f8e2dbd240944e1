"""Host: `ModelConfig`, the parameters of a model's shape and arithmetic, and the table of its layers."""

import math
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from jaxserve.core.errors import ConfigError
from jaxserve.core.kv_groups import KVGroups


@dataclass(frozen=True, slots=True)
class LongRope:
    """The second table of factors (LongRoPE, arXiv 2402.13753), for contexts of more than `original_len` tokens."""

    factors: tuple[float, ...]
    original_len: int


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding (RoFormer, arXiv 2104.09864), first half of the values with the second.

    The first `dim` values of a head are rotated (None: all H). `factors`, one for each of the dim/2 frequencies, divide
    the frequencies `base ** (-2i / dim)`; `attention_factor` multiplies cosines and sines. If `long` is set, the table
    of factors depends on the context: `for_context` selects it.
    """

    base: float
    factors: tuple[float, ...] | None = None
    attention_factor: float = 1.0
    dim: int | None = None
    long: LongRope | None = None

    def frequencies(self, head_dim: int) -> list[float]:
        if self.long is not None:
            raise ValueError("this rope has two tables of factors: select one with for_context first")
        dim = self.dim or head_dim
        plain = [self.base ** (-2 * i / dim) for i in range(dim // 2)]
        if self.factors is None:
            return plain
        return [f / factor for f, factor in zip(plain, self.factors, strict=True)]

    def for_context(self, max_len: int) -> "Rope":
        """The rope with one table for all positions of contexts of up to `max_len` tokens.

        Keys in the pool are already rotated when a sequence grows past the limit, so the table cannot change then.
        """
        if self.long is None:
            return self
        return replace(self, factors=self.long.factors if max_len > self.long.original_len else self.factors, long=None)


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers with the same rope and window; they share one stacked parameter tree."""

    name: str
    rope: Rope
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """A row of the layer table: the indices of a layer's weights and of its KV pages."""

    kind: int
    index_in_kind: int
    group: int  # KV group, counted within the kind
    index_in_group: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder-only transformer. `layer_kinds[l]` is the index in `kinds` of layer l."""

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
    has_qkv_bias: bool = False
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
        for rope in (kind.rope for kind in self.kinds):
            self._check_rope(rope)

    def _check_rope(self, rope: Rope) -> None:
        dim = self.head_dim if rope.dim is None else rope.dim
        if dim % 2 or not 0 < dim <= self.head_dim:
            raise ConfigError(f"rope rotates {dim} of {self.head_dim} values of a head: it takes an even number")
        if not 0 < rope.attention_factor < math.inf:
            raise ConfigError(f"rope has the attention factor {rope.attention_factor}, which must be positive")
        for factors in (rope.factors, rope.long.factors if rope.long else None):
            if factors is not None and not (len(factors) == dim // 2 and all(0 < f < math.inf for f in factors)):
                raise ConfigError(f"rope needs {dim // 2} positive factors, one for each frequency")

    @property
    def scale(self) -> float:
        return self.head_dim**-0.5 if self.attention_scale is None else self.attention_scale

    def for_context(self, max_len: int) -> "ModelConfig":
        """This model for sequences of up to `max_len` tokens: see `Rope.for_context`."""
        return replace(self, kinds=tuple(replace(k, rope=k.rope.for_context(max_len)) for k in self.kinds))

    @property
    def layers_per_group(self) -> int:
        """Layers of every KV group: the number of the rarest kind's layers, so no group is mostly padding."""
        return min(self.layer_kinds.count(k) for k in range(len(self.kinds)))

    def num_groups(self, kind: int) -> int:
        return -(-self.layer_kinds.count(kind) // self.layers_per_group)

    @property
    def group_ranges(self) -> tuple[tuple[int, int], ...]:
        """The half-open range of KV groups of each kind."""
        ends = accumulate((self.num_groups(k) for k in range(len(self.kinds))), initial=0)
        return tuple(pairwise(ends))

    @property
    def layer_table(self) -> tuple[Layer, ...]:
        seen = [0] * len(self.kinds)
        table: list[Layer] = []
        for kind in self.layer_kinds:
            group, index = divmod(seen[kind], self.layers_per_group)
            table.append(Layer(kind, seen[kind], group, index))
            seen[kind] += 1
        return tuple(table)

    def kv_groups(self, page_size: int) -> KVGroups:
        """KV groups in order: all groups of kind 0, then of kind 1, …"""
        windows = [kind.window for k, kind in enumerate(self.kinds) for _ in range(self.num_groups(k))]
        return KVGroups(tuple(windows), page_size)
