"""Host: how a family's file spelling maps to the parameter tree, one row a tensor, as data.

A `Rule` says which tensors (a regular expression whose group `layer`, if any, is the layer number), which leaf of the
tree, which rows of that leaf, and what is done to the rows on the way. Rows here run along the *first* axis of the
file's tensor, so a vector's rows are its values. All leaves under `layers/<kind>/` are stacked over the layers of that
kind.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from checkpoints.mapping.transforms import Transform, keep

# One layer number, in decimal without leading zeros: "blk.00." is no second spelling of "blk.0.".
LAYER = r"(?P<layer>0|[1-9][0-9]{0,5})"


@dataclass(frozen=True)
class ModelDims:
    """The sizes that maps need and leaf shapes do not tell.

    `layer_slots[i]` is (kind, index among the layers of that kind) of layer i. `kv_repeat` is how often each key-value
    head of the file is repeated so that tensor parallelism divides them; query heads are grouped by the repeated heads.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    layer_slots: tuple[tuple[str, int], ...]
    kv_repeat: int = 1
    is_tied: bool = True

    def __post_init__(self) -> None:
        if self.num_heads % self.num_groups:
            raise ValueError(
                f"num_heads {self.num_heads} must be a multiple of num_kv_heads x kv_repeat, {self.num_groups}"
            )

    @property
    def num_groups(self) -> int:
        """K of the tree: key-value heads after repetition."""
        return self.num_kv_heads * self.kv_repeat

    @property
    def group_rows(self) -> int:
        """G·H: rows of the query heads of one group."""
        return self.num_heads // self.num_groups * self.head_dim


@dataclass(frozen=True, slots=True)
class Run:
    """Rows `[source, source + num_rows)` of a tensor, which go to `leaf[(*lead, target : target + num_rows)]`.

    All further axes go whole. The `num_padding` rows of the leaf behind them stay zero.
    """

    source: int
    num_rows: int
    lead: tuple[int, ...]
    target: int = 0
    num_padding: int = 0


# (sizes, index of the layer in its kind, shape of the leaf) -> where the tensor's rows go
Placement = Callable[[ModelDims, int, tuple[int, ...]], tuple[Run, ...]]


@dataclass(frozen=True)
class Rule:
    """Tensors whose whole name matches `pattern` fill `path` ("layers/{kind}/qkv").

    With `path` None they are left out on purpose.
    """

    pattern: str
    path: str | None
    place: Placement
    dims: ModelDims
    transform: Transform = keep

    def match(self, name: str) -> int | None:
        """The layer number in `name`, 0 for a tensor outside the layers, or None where the rule does not apply."""
        found = re.fullmatch(self.pattern, name)
        if not found:
            return None
        layer = int(found.groupdict().get("layer") or 0)
        return layer if self.path is None or layer in self.layers else None

    @property
    def layers(self) -> range:
        """The layers that have such a tensor."""
        return range(len(self.dims.layer_slots)) if "?P<layer>" in self.pattern else range(1)

    def leaf(self, layer: int) -> str:
        """The path of the leaf that holds this layer's tensor."""
        if self.path is None:
            raise ValueError(f"{self.pattern} is left out: it has no leaf")
        return self.path.format(kind=self.dims.layer_slots[layer][0])

    def runs(self, layer: int, leaf_shape: tuple[int, ...]) -> tuple[Run, ...]:
        """Where the rows of this layer's tensor go."""
        index = self.dims.layer_slots[layer][1] if "{kind}" in (self.path or "") else 0
        return self.place(self.dims, index, leaf_shape)

    def spelling(self, layer: int) -> str:
        """The tensor's name as a person would look for it."""
        name = re.sub(r"\(\?:[^)]*\)\?", "", self.pattern.replace(LAYER, str(layer)))
        return name.replace("\\", "")
