"""Host: `adapter_modules`: pairs the tensors of an adapter's file, by their names and shapes alone.

    base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight      a [rank, in]
    base_model.model.model.layers.3.self_attn.q_proj.lora_B.weight      b [out, rank]

PEFT also writes the adapter's name before `weight`, and other programs leave the first words out.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from checkpoints.errors import CheckpointError, listed
from checkpoints.formats.tensor_file import TensorInfo
from checkpoints.mapping.rules import LAYER

Shapes = Mapping[str, tuple[int, int]]
"""(outputs, inputs) of each matrix of a layer: "q", "k", "v", "o", "gate", "up", "down"."""
PARTS = {
    "self_attn.q_proj": ("q",),
    "self_attn.k_proj": ("k",),
    "self_attn.v_proj": ("v",),
    "self_attn.qkv_proj": ("q", "k", "v"),
    "self_attn.o_proj": ("o",),
    "mlp.gate_proj": ("gate",),
    "mlp.up_proj": ("up",),
    "mlp.gate_up_proj": ("gate", "up"),
    "mlp.down_proj": ("down",),
}
"""The matrices of each module, whose outputs lie one after the other."""
_MAX_NAME = 200
FLOATS = ("F32", "F16", "BF16")
_TENSOR = re.compile(
    r"(?:base_model\.model\.)?(?P<module>(?:model\.|language_model\.){0,3}"
    rf"layers\.{LAYER}\.(?P<name>{'|'.join(map(re.escape, PARTS))}))\.lora_(?P<side>[AB])(?:\.[\w-]+)?\.weight"
)
_ELSEWHERE = {
    r"lora_embedding_[AB]|\bembed_tokens\b": "adapters of the embedding are not supported",
    r"\blm_head\b": "adapters of the head are not supported",
    r"lora_magnitude_vector": "DoRA is not supported",
    r"lora_[AB]\b.*\.bias$": "biases of adapters are not supported",
    r"\bexperts\b|\brouter\b|\.mlp\.gate\.": "adapters of experts are not supported",
    r"\bconv\w*\.": "adapters of convolutions are not supported",
    r"lora_[AB]\b": "not a matrix of this model's layers",
    "": "not a part of a LoRA adapter",
}


@dataclass(frozen=True, slots=True)
class AdapterModule:
    """A module of the model and its two tensors. parts: of `Shapes`."""

    name: str
    layer: int
    parts: tuple[str, ...]
    a: TensorInfo
    b: TensorInfo

    @property
    def rank(self) -> int:
        return self.a.shape[0]


def adapter_modules(
    where: str, tensors: Mapping[str, TensorInfo], shapes: Shapes, num_layers: int, max_rank: int
) -> tuple[AdapterModule, ...]:
    """All tensors, each used once. Raises one `CheckpointError` that begins with `where` and lists all that do not
    fit the model."""
    most = 2 * num_layers * len(shapes)
    if len(tensors) > most:
        raise CheckpointError(f"{where}: has {len(tensors)} tensors; an adapter of this model has at most {most}")
    found, problems = _paired(tensors)
    modules = [
        AdapterModule(name, layer, PARTS[end], sides["A"], sides["B"])
        for (layer, end), (name, sides) in found.items()
        if len(sides) == 2
    ]
    problems += _overlaps(modules)
    for module in modules:
        problems += _misfits(module, shapes, num_layers, max_rank)
    if not tensors:
        problems.append("it has none")
    if problems:
        plural = "s" if len(problems) > 1 else ""
        raise CheckpointError(
            f"{where}: its tensors do not fit the model, {len(problems)} problem{plural}{listed(problems)}"
        )
    return tuple(modules)


def _paired(
    tensors: Mapping[str, TensorInfo],
) -> tuple[dict[tuple[int, str], tuple[str, dict[str, TensorInfo]]], list[str]]:
    """Name and tensors of each module, by its layer and its name in there, and what is wrong."""
    found: dict[tuple[int, str], tuple[str, dict[str, TensorInfo]]] = {}
    problems: list[str] = []
    for name, info in tensors.items():
        if len(name) > _MAX_NAME or (match := _TENSOR.fullmatch(name)) is None:
            problems.append(f"unexpected: {name[:_MAX_NAME]} ({_reason(name[:_MAX_NAME])})")
            continue
        _, sides = found.setdefault((int(match["layer"]), match["name"]), (match["module"], {}))
        if (other := sides.setdefault(match["side"], info)) is not info:
            problems.append(f"twice: {name} and {other.name} are the same tensor")
    for _, sides in found.values():
        if len(sides) == 1:
            side, info = next(iter(sides.items()))
            problems.append(f"alone: {info.name} has no lora_{'B' if side == 'A' else 'A'}")
    return found, problems


def _reason(name: str) -> str:
    return next(reason for pattern, reason in _ELSEWHERE.items() if re.search(pattern, name))


def _overlaps(modules: list[AdapterModule]) -> Iterator[str]:
    """Modules of one matrix: q_proj and qkv_proj of a layer."""
    owners: dict[tuple[int, str], str] = {}
    for module in modules:
        for part in module.parts:
            if (owner := owners.setdefault((module.layer, part), module.name)) != module.name:
                yield f"twice: {owner} and {module.name} have the same rows"


def _misfits(module: AdapterModule, shapes: Shapes, num_layers: int, max_rank: int) -> Iterator[str]:
    a, b = module.a, module.b
    if module.layer >= num_layers:
        yield f"unexpected: {module.name} (the model has {num_layers} layers)"
        return
    for info in (a, b):
        if info.dtype not in FLOATS:
            yield f"dtype: {info.name} is {info.dtype}; {', '.join(FLOATS)} are read"
        if len(info.shape) != 2:
            yield f"shape: {info.name} has {len(info.shape)} axes, not 2"
            return
    num_out, num_in, rank = sum(shapes[part][0] for part in module.parts), shapes[module.parts[0]][1], module.rank
    if not 0 < rank <= max_rank:
        yield f"rank: {module.name} has rank {rank}; from 1 to {max_rank} is accepted (max_lora_rank)"
    elif a.shape != (rank, num_in):
        yield f"shape: {a.name} is {list(a.shape)}, the model needs [rank, {num_in}]"
    elif b.shape != (num_out, rank):
        yield f"shape: {b.name} is {list(b.shape)}, the model needs {[num_out, rank]}"
