"""Host: the quantization scheme in config.json: FP8 with scales is supported, others are refused by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from checkpoints.errors import CheckpointError

CONFIG_KEYS = ("quantization_config", "compression_config")
# Files next to config.json in which older tools declare quantization.
SIDECARS = {
    "hf_quant_config.json": "modelopt",
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
}
_INSTEAD = (
    "jaxserve reads 'fp8', 'fbgemm_fp8' and 8-bit float 'compressed-tensors' (weights are decoded while loading), "
    "GGUF files and unquantized weights: use the model in one of these forms"
)


@dataclass(frozen=True, slots=True)
class Fp8Scheme:
    """Which values of a weight `[out, in]` share a scale: all, those of one row, or of one block `[rows, columns]`."""

    strategy: Literal["tensor", "channel", "block"]
    block: tuple[int, int] = (1, 1)


def read_scheme(config: Mapping[str, Any], folder: Path) -> Fp8Scheme | None:
    """The scheme that a model's config.json declares, None for plain weights.

    Raises `CheckpointError` where the scheme is not supported.
    """
    key = next((key for key in CONFIG_KEYS if config.get(key) is not None), None)
    if key is None:
        for name, method in SIDECARS.items():
            if (folder / name).is_file():
                raise CheckpointError(f"{folder}: {name} declares weights quantized by {method!r}; {_INSTEAD}")
        return None
    where, values = f"{folder / 'config.json'}: {key}", _object(config[key])
    if values is None:
        raise CheckpointError(f"{where} must be an object")
    method: Any = values.get("quant_method", "compressed-tensors" if "config_groups" in values else None)
    match method:
        case "fp8":
            block = values.get("weight_block_size")
            if block is None:
                return Fp8Scheme("tensor")
            return Fp8Scheme("block", _block(block, f"{where}.weight_block_size"))
        case "fbgemm_fp8":
            return Fp8Scheme("channel")
        case "compressed-tensors":
            return _compressed(values, where)
        case _:
            raise CheckpointError(f"{where}: quant_method {method!r} is not supported; {_INSTEAD}")


def _object(value: Any) -> dict[str, Any] | None:
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def _compressed(values: dict[str, Any], where: str) -> Fp8Scheme:
    if not (groups := _object(values.get("config_groups"))):
        raise CheckpointError(f"{where}.config_groups must name at least one group")
    sparsity: dict[str, Any] = values.get("sparsity_config") or {}
    if sparsity.get("format", "dense") != "dense":
        raise CheckpointError(f"{where}: sparse weights ({sparsity['format']}) are not supported; {_INSTEAD}")
    if values.get("transform_config"):
        raise CheckpointError(f"{where}: transform_config (rotated weights) is not supported; {_INSTEAD}")
    schemes = {_group(group, f"{where}.config_groups.{name}") for name, group in groups.items()}
    if len(schemes) > 1:
        raise CheckpointError(f"{where}: groups with different weight schemes are not supported; {_INSTEAD}")
    return schemes.pop()


def _group(group: Any, where: str) -> Fp8Scheme:
    weights = _object((_object(group) or {}).get("weights"))
    if weights is None:
        raise CheckpointError(f"{where} must describe how its weights are quantized")
    kind = (weights.get("type", "int"), weights.get("num_bits"))
    if kind != ("float", 8) or not weights.get("symmetric", True):
        raise CheckpointError(f"{where}: weights of {kind[1]} bits and type {kind[0]!r} are not supported; {_INSTEAD}")
    match weights.get("strategy"):
        case "tensor" | "channel" as strategy:
            return Fp8Scheme(strategy)
        case "block":
            return Fp8Scheme("block", _block(weights.get("block_structure"), f"{where}.weights.block_structure"))
        case strategy:
            raise CheckpointError(f"{where}: weight scales by {strategy!r} are not supported; {_INSTEAD}")


def _block(value: Any, where: str) -> tuple[int, int]:
    match value:
        case [int(rows), int(columns)] if 0 < rows < 2**31 and 0 < columns < 2**31:
            return rows, columns
        case _:
            raise CheckpointError(f"{where} must be two sizes, rows and columns, not {value!r}")
