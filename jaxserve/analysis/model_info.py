"""Wiring: a model's architecture, and its parameters by part: how many, and their bytes as stored and as loaded."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from checkpoints.formats.tensor_file import TensorInfo
from checkpoints.mapping.trees import matrices
from checkpoints.open_checkpoint import Checkpoint
from jaxserve.core.hardware.mesh import AnyMesh, abstract_mesh
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.packing import DENSE, Packing
from jaxserve.models.param_spec import Matrix, decoded_spec
from jaxserve.models.params import declare, num_bytes
from jaxserve.runner.load_weights import TENSOR_NAMES, dims

PARTS = ("embedding", "attention", "MLP", "norms", "head")
UNUSED = "unused"  # tensors of the file that belong to no parameter


@dataclass(frozen=True, slots=True)
class LayerKindInfo:
    """The layers of one kind."""

    name: str
    num_layers: int
    window: int | None
    rope_base: float
    is_rope_scaled: bool


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model as `ModelConfig` describes it, in plain values."""

    family: str
    num_layers: int
    kinds: tuple[LayerKindInfo, ...]
    d_model: int
    d_mlp: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position: int
    activation: str
    is_tied: bool
    declared_dtype: str | None


@dataclass(frozen=True, slots=True)
class PartInfo:
    """One part of the parameters. stored_bytes: the file's, None without one. loaded_bytes: in the chosen dtype."""

    name: str
    num_params: int
    stored_bytes: int | None
    loaded_bytes: int


def architecture(model: ModelConfig) -> Architecture:
    kinds = tuple(
        LayerKindInfo(
            name=kind.name,
            num_layers=model.layer_kinds.count(i),
            window=kind.attention.window,
            rope_base=kind.attention.rope.base,
            is_rope_scaled=kind.attention.rope.factors is not None or kind.attention.rope.long is not None,
        )
        for i, kind in enumerate(model.kinds)
    )
    names = "family num_layers d_model num_heads num_kv_heads head_dim vocab_size max_position is_tied"
    sizes = {name: getattr(model, name) for name in names.split()}
    mlp = model.common(lambda kind: kind.mlp)
    return Architecture(kinds=kinds, declared_dtype=model.dtype, d_mlp=mlp.width, activation=mlp.activation, **sizes)


def parameter_parts(
    model: ModelConfig, checkpoint: Checkpoint | None, dtype: Any, packing: Packing = DENSE
) -> tuple[PartInfo, ...]:
    """The parameters by part, as one device would hold them; parts that the model lacks are left out."""
    num_params, loaded = Counter[str](), Counter[str]()
    for path, leaf in leaves(model, abstract_mesh(1), dtype, packing).items():
        spec = decoded_spec(leaf)
        sizes = [model.vocab_size if axis == "vocab" else n for n, axis in zip(spec.shape, spec.axes, strict=True)]
        num_params[part_of(path)] += math.prod(sizes)
        loaded[part_of(path)] += num_bytes(leaf)
    stored = None if checkpoint is None else _stored(model, checkpoint)
    names = [name for name in (*PARTS, UNUSED) if num_params[name] or (stored and stored[name])]
    return tuple(PartInfo(n, num_params[n], None if stored is None else stored[n], loaded[n]) for n in names)


def leaves(model: ModelConfig, mesh: AnyMesh, dtype: Any, packing: Packing = DENSE) -> Mapping[str, Matrix]:
    """The declared parameters by path."""
    return matrices(declare(model, mesh, dtype, packing=packing))


def part_of(path: str) -> str:
    """The part that a leaf such as "layers/global/qkv" belongs to."""
    name = path.rpartition("/")[2]
    if name in ("embed", "lm_head"):
        return "embedding" if name == "embed" else "head"
    if "norm" in name:
        return "norms"
    return "attention" if name.partition("_")[0] in ("qkv", "o", "sinks") else "MLP"


def _stored(model: ModelConfig, checkpoint: Checkpoint) -> Counter[str]:
    """Bytes of the file by part, by the family's checkpoint mapping."""
    if checkpoint.spelling not in ("hf", "gguf"):  # a saved tree, whose tensors have the names of leaves
        return _counted({name: part_of(name) for name in checkpoint.tensors}, checkpoint.tensors)
    rules = TENSOR_NAMES[model.family].rules(checkpoint.spelling, dims(model, abstract_mesh(1)))
    part_by_tensor: dict[str, str] = {}
    for name in checkpoint.tensors:
        found = ((rule, layer) for rule in rules if (layer := rule.match(name)) is not None)
        rule, layer = next(found, (None, 0))
        part_by_tensor[name] = UNUSED if rule is None or rule.path is None else part_of(rule.leaf(layer))
    return _counted(part_by_tensor, checkpoint.tensors)


def _counted(part_by_tensor: Mapping[str, str], tensors: Mapping[str, TensorInfo]) -> Counter[str]:
    counts = Counter[str]()
    for name, part in part_by_tensor.items():
        counts[part] += tensors[name].nbytes
    return counts
