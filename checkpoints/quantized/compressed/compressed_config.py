"""Host: the config of compressed-tensors: groups of modules, each with types and scales of its weights."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from checkpoints.quantized.compressed.compressed_fp4 import Fp4Scheme
from checkpoints.quantized.compressed.compressed_ints import IntScheme
from checkpoints.quantized.config_values import Where, group_sizes_of, object_of, sizes_of
from checkpoints.quantized.fp8 import Fp8Scheme
from checkpoints.quantized.mixed_scheme import MixedScheme
from checkpoints.quantized.quantized_weight import Scheme

BY_TOKEN = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
_INT_BITS = range(2, 9)


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
    floats = [scheme for scheme in found if isinstance(scheme, Fp8Scheme)]
    ints = [scheme for scheme in found if isinstance(scheme, IntScheme)]
    others = [scheme for scheme in found if isinstance(scheme, Fp4Scheme)]
    return MixedScheme((*_joined_ints(ints), *_joined_floats(floats), *dict.fromkeys(others)))


def _joined_ints(schemes: Sequence[IntScheme]) -> list[IntScheme]:
    """One for each number of bits, most bits first: scales tell apart sizes of groups, and nothing activations."""
    joined = list[IntScheme]()
    for bits in sorted({scheme.bits for scheme in schemes}, reverse=True):
        own = [scheme for scheme in schemes if scheme.bits == bits]
        group_sizes = frozenset[int]().union(*(scheme.group_sizes for scheme in own))
        joined.append(IntScheme(bits, group_sizes, all(scheme.has_coded_inputs for scheme in own)))
    return joined


def _joined_floats(schemes: Sequence[Fp8Scheme]) -> Iterable[Fp8Scheme]:
    """One for each way to have scales."""
    has_coded_inputs = all(scheme.has_coded_inputs for scheme in schemes)
    return dict.fromkeys(replace(scheme, has_coded_inputs=has_coded_inputs) for scheme in schemes)


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
