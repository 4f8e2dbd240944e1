"""Host: the config of compressed-tensors: groups of modules, each with types and scales of its weights.

Which tensors a weight is stored as says which kind of weights it is of; of each kind a model may have one form.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from checkpoints.formats.tensor_file import ColumnFile, TensorInfo
from checkpoints.quantized.compressed_fp4 import Fp4Scheme
from checkpoints.quantized.compressed_ints import IntScheme
from checkpoints.quantized.config_values import Where, group_sizes_of, object_of, sizes_of
from checkpoints.quantized.fp8 import Fp8Scheme
from checkpoints.quantized.quantized_weight import QuantizedWeight, Scheme

BY_TOKEN = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
_INT_BITS = range(2, 9)


@dataclass(frozen=True, slots=True)
class CompressedScheme:
    """schemes: of the kinds of weights that the model has."""

    schemes: tuple[Scheme, ...]

    def has_codes(self, info: TensorInfo) -> bool:
        """See `Scheme`."""
        return any(scheme.has_codes(info) for scheme in self.schemes)

    def weight(self, file: ColumnFile, name: str) -> QuantizedWeight:
        """See `Scheme`."""
        own = next(scheme for scheme in self.schemes if scheme.has_codes(file.tensors[name]))
        return own.weight(file, name)


def read_compressed(values: Mapping[str, Any], where: Where) -> Scheme:
    """Raises `CheckpointError` where a form is not supported."""
    if not (groups := object_of(values.get("config_groups"))):
        raise (where / "config_groups").fault("must name at least one group")
    sparsity = object_of(values.get("sparsity_config")) or {}
    if sparsity.get("format", "dense") != "dense":
        raise where.unsupported(f"sparsity ({sparsity['format']})")
    if values.get("transform_config"):
        raise where.unsupported("transform_config (rotated weights)")
    found = [_of_group(group, where / f"config_groups.{name}") for name, group in groups.items()]
    has_coded_inputs = all(scheme.has_coded_inputs for scheme in found if isinstance(scheme, Fp8Scheme))
    ints = [scheme.group_sizes for scheme in found if isinstance(scheme, IntScheme)]
    group_sizes = frozenset[int]().union(*ints)
    schemes = set[Scheme]()
    for scheme in found:
        if isinstance(scheme, Fp8Scheme):
            scheme = replace(scheme, has_coded_inputs=has_coded_inputs)
        elif isinstance(scheme, IntScheme):
            scheme = replace(scheme, group_sizes=group_sizes)
        schemes.add(scheme)
    if len({type(scheme) for scheme in schemes}) < len(schemes):
        raise where.unsupported("the use of weights of one kind with different bits or scales")
    return CompressedScheme(tuple(schemes))


def _of_group(group: Any, where: Where) -> Scheme:
    described = object_of(group) or {}
    weights, inputs = object_of(described.get("weights")), object_of(described.get("input_activations"))
    if weights is None:
        raise where.fault("must describe how its weights are quantized")
    kind, bits, where = weights.get("type", "int"), weights.get("num_bits"), where / "weights"
    if kind == "int" and type(bits) is int and bits in _INT_BITS:
        return _ints(weights, bits, inputs, where)
    if kind == "float" and bits == 8 and weights.get("symmetric", True):
        has_coded_inputs = inputs is not None and inputs.get("type") == "float" and inputs.get("num_bits") == 8
        return _fp8(weights, has_coded_inputs, where)
    if kind == "float" and bits == 4:
        return Fp4Scheme()
    raise where.unsupported(f"the type {kind!r} of {bits!r} bits")


def _ints(weights: Mapping[str, Any], bits: int, inputs: Mapping[str, Any] | None, where: Where) -> Scheme:
    strategy, group_sizes = weights.get("strategy"), frozenset({-1})
    if strategy not in ("tensor", "channel", "group"):
        raise where.unsupported(f"the strategy {strategy!r} of integers")
    if strategy == "group" and not (group_sizes := group_sizes_of(weights.get("group_size"), where / "group_size")):
        raise where.fault("must have a group_size with the strategy 'group'")
    is_by_token = inputs is not None and all(inputs.get(key) == value for key, value in BY_TOKEN.items())
    return IntScheme(bits, group_sizes, is_by_token)


def _fp8(weights: Mapping[str, Any], has_coded_inputs: bool, where: Where) -> Scheme:
    match weights.get("strategy"):
        case "tensor" | "channel" as strategy:
            return Fp8Scheme(strategy, has_coded_inputs=has_coded_inputs)
        case "block":
            return Fp8Scheme("block", sizes_of(weights.get("block_structure"), where / "block_structure"))
        case strategy:
            raise where.unsupported(f"the strategy {strategy!r} of FP8")
