"""Host: `ModelConfig`, the parameters of a model's shape and arithmetic, and the table of its layers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from jaxserve.core.errors import ConfigError
from jaxserve.core.kv_groups import KVGroups
from jaxserve.models.config.layer_kind import LayerKind


@dataclass(frozen=True, slots=True)
class Stack:
    """Layers of one kind whose weights are stored together; name: of their tree of parameters."""

    name: str
    kind: LayerKind


@dataclass(frozen=True, slots=True)
class Layer:
    """A row of the layer table: a layer's kind, and the indices of its weights and of its KV pages."""

    kind: int
    stack: int
    index_in_stack: int
    group: int  # KV group, counted within the kind
    index_in_group: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder-only transformer. `layer_stacks[l]` is the index in `stacks` of layer l."""

    family: str
    vocab_size: int
    d_model: int
    max_position: int
    stacks: tuple[Stack, ...]
    layer_stacks: tuple[int, ...]
    norm_eps: float = 1e-6
    is_tied: bool = False
    embed_scale: float = 1.0
    final_softcap: float | None = None
    dtype: str | None = None  # as the checkpoint declares it
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    @property
    def num_layers(self) -> int:
        return len(self.layer_stacks)

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        return tuple(dict.fromkeys(stack.kind for stack in self.stacks))

    @property
    def layer_kinds(self) -> tuple[int, ...]:
        """The index in `kinds` of each layer's kind."""
        kinds = self.kinds
        by_stack = [kinds.index(stack.kind) for stack in self.stacks]
        return tuple(by_stack[stack] for stack in self.layer_stacks)

    def common[T](self, part_of: Callable[[LayerKind], T]) -> T:
        """What all kinds of layers share, such as the heads in the one KV pool; raises ConfigError if they do not."""
        first, *others = (part_of(kind) for kind in self.kinds)
        if any(other != first for other in others):
            raise ConfigError(f"the layers of this model differ where they must not: {[first, *others]}", "model")
        return first

    @property
    def num_heads(self) -> int:
        return self.common(lambda kind: kind.attention.num_heads)

    @property
    def num_kv_heads(self) -> int:
        return self.common(lambda kind: kind.attention.num_kv_heads)

    @property
    def head_dim(self) -> int:
        return self.common(lambda kind: kind.attention.head_dim)

    def map_kinds(self, change: Callable[[LayerKind], LayerKind]) -> "ModelConfig":
        """This model with each kind of its layers changed."""
        return replace(self, stacks=tuple(replace(stack, kind=change(stack.kind)) for stack in self.stacks))

    def for_context(self, max_len: int) -> "ModelConfig":
        """This model for sequences of up to `max_len` tokens: see `Rope.for_context`."""

        def select(kind: LayerKind) -> LayerKind:
            rope = kind.attention.rope.for_context(max_len)
            return replace(kind, attention=replace(kind.attention, rope=rope))

        return self.map_kinds(select)

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
        num_of_kind, num_of_stack = [0] * len(self.kinds), [0] * len(self.stacks)
        table: list[Layer] = []
        layers_per_group = self.layers_per_group
        for kind, stack in zip(self.layer_kinds, self.layer_stacks, strict=True):
            group, index_in_group = divmod(num_of_kind[kind], layers_per_group)
            table.append(Layer(kind, stack, num_of_stack[stack], group, index_in_group))
            num_of_kind[kind] += 1
            num_of_stack[stack] += 1
        return tuple(table)

    def kv_groups(self, page_size: int) -> KVGroups:
        """KV groups in order: all groups of kind 0, then of kind 1, …"""
        windows = [kind.attention.window for k, kind in enumerate(self.kinds) for _ in range(self.num_groups(k))]
        return KVGroups(tuple(windows), page_size)
