"""Host: `Rule`: the mapping from tensors of a file to leaves of the parameter tree, as data.

A `Rule` names the tensors (a regular expression; its group `layer`, if any, is the layer number), the leaf of the tree,
the rows of that leaf, and the transform of the rows. Rows run along the *first* axis of the file's tensor, so the rows
of a vector are its values. Leaves under `layers/<stack>/` are stacked over the layers of that stack.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from checkpoints.mapping.transforms import Transform, keep

# A layer number in decimal without leading zeros: "blk.00." does not match "blk.0.".
LAYER = r"(?P<layer>0|[1-9][0-9]{0,5})"

Shapes = Mapping[str, tuple[int, ...]]
"""Shapes of leaves by their paths."""


@dataclass(frozen=True)
class ModelDims:
    """Sizes that rules need in addition to the shapes of the leaves.

    layer_slots: for each layer (the name of its stack, index in it). kv_repeat: how often each KV head of
    the file is repeated, so that tensor parallelism divides them; query heads are grouped by the repeated heads.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    layer_slots: tuple[tuple[str, int], ...]
    kv_repeat: int = 1
    is_tied: bool = True

    def __post_init__(self) -> None:
        if self.num_heads % self.num_tree_kv_heads:
            raise ValueError(
                f"num_heads {self.num_heads} must be a multiple of num_kv_heads x kv_repeat, {self.num_tree_kv_heads}"
            )

    @property
    def num_tree_kv_heads(self) -> int:
        """K of the tree: the KV heads after repetition."""
        return self.num_kv_heads * self.kv_repeat

    @property
    def group_rows(self) -> int:
        """G·H: rows of the query heads of one group."""
        return self.num_heads // self.num_tree_kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class Run:
    """Rows `[source, source + num_rows)` of a tensor, copied to `leaf[(*lead, target : target + num_rows)]`.

    The other axes are copied whole. The next `num_padding` rows of the leaf stay zero.
    """

    source: int
    num_rows: int
    lead: tuple[int, ...]
    target: int = 0
    num_padding: int = 0


# (sizes, index of the layer in its stack, shape of the leaf) → where the tensor's rows go
Placement = Callable[[ModelDims, int, tuple[int, ...]], tuple[Run, ...]]


@dataclass(frozen=True)
class Rule:
    """Tensors whose whole name matches `pattern` fill the leaf `path` ("layers/{stack}/qkv").

    With `path` None they are ignored on purpose.
    """

    pattern: str
    path: str | None
    place: Placement
    dims: ModelDims
    transform: Transform = keep

    def match(self, name: str) -> int | None:
        """The layer number in `name`, 0 for a tensor outside the layers, None where the rule does not apply."""
        found = re.fullmatch(self.pattern, name)
        if not found:
            return None
        layer = int(found.groupdict().get("layer") or 0)
        return layer if self.path is None or layer in self.layers else None

    @property
    def layers(self) -> range:
        """The layers whose tensors fill a leaf; 0 stands for a tensor outside the layers."""
        if self.path is None:
            return range(0)
        return range(len(self.dims.layer_slots)) if "?P<layer>" in self.pattern else range(1)

    @property
    def is_stacked(self) -> bool:
        """Whether the leaf holds the layers of one stack."""
        return self.path is not None and "{stack}" in self.path

    def leaf(self, layer: int) -> str:
        """The path of the leaf that holds this layer's tensor."""
        if self.path is None:
            raise ValueError(f"{self.pattern} is ignored: it has no leaf")
        return self.path.format(stack=self.dims.layer_slots[layer][0])

    def runs(self, layer: int, leaf_shape: tuple[int, ...]) -> tuple[Run, ...]:
        """Where the rows of this layer's tensor are copied to."""
        index = self.dims.layer_slots[layer][1] if self.is_stacked else 0
        return self.place(self.dims, index, leaf_shape)

    def tensor_name(self, layer: int) -> str:
        """The name of this layer's tensor, for error messages and for writing."""
        name = re.sub(r"\(\?:[^)]*\)\?", "", self.pattern.replace(LAYER, str(layer)))
        return name.replace("\\", "")
