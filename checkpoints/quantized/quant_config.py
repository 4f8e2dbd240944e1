"""Host: how a model's weights are quantized, as its config.json says, or another file in its folder."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from checkpoints.formats.bounded_json import read_object
from checkpoints.quantized.awq import AwqScheme
from checkpoints.quantized.bitsandbytes import STORAGE, BitsAndBytesScheme
from checkpoints.quantized.compressed.compressed_config import read_compressed
from checkpoints.quantized.config_values import Where, group_sizes_of, object_of, sizes_of
from checkpoints.quantized.fp8 import Fp8Scheme
from checkpoints.quantized.gptq import GptqScheme
from checkpoints.quantized.mixed_scheme import MixedScheme
from checkpoints.quantized.quantized_weight import Scheme

CONFIG_KEYS = ("quantization_config", "compression_config")
SIDECARS = {"hf_quant_config.json": "modelopt", "quantize_config.json": "gptq", "quant_config.json": "awq"}
"""Other files of the folder that declare quantization, and the method of each."""
_MAX_BYTES = 1_000_000
_GPTQ_BITS = (2, 3, 4, 8)
_GPTQ_FORMATS = {"gptq": True, "gptq_v2": False}  # whether zero points are stored less one


def read_scheme(config: Mapping[str, Any], folder: Path) -> Scheme | None:
    """The scheme that a model's config.json declares, None for plain weights.

    Raises `CheckpointError` where the scheme is not supported.
    """
    key = next((key for key in CONFIG_KEYS if config.get(key) is not None), None)
    if key is not None:
        where = Where(f"{folder / 'config.json'}: {key}")
        if (values := object_of(config[key])) is None:
            raise where.fault("must be an object")
        return _scheme(values, values.get("quant_method", _guess(values)), where)
    for name, method in SIDECARS.items():
        if (path := folder / name).is_file():
            return _scheme(read_object(path, _MAX_BYTES), method, Where(str(path)))
    return None


def _guess(values: Mapping[str, Any]) -> str | None:
    return "compressed-tensors" if "config_groups" in values else None


def _scheme(values: Mapping[str, Any], method: Any, where: Where) -> Scheme:
    read = _METHODS.get(method) if isinstance(method, str) else None
    if read is None:
        raise where.unsupported(f"quant_method {method!r}")
    return read(values, where)


def _fp8(values: Mapping[str, Any], where: Where) -> Scheme:
    block = values.get("weight_block_size")
    return Fp8Scheme("tensor") if block is None else Fp8Scheme("block", sizes_of(block, where / "weight_block_size"))


def _gptq(values: Mapping[str, Any], where: Where) -> Scheme:
    stored_as = values.get("checkpoint_format") or "gptq"
    if values.get("is_marlin_format"):
        stored_as = "marlin"
    if not isinstance(stored_as, str) or stored_as not in _GPTQ_FORMATS:
        raise where.unsupported(f"the GPTQ checkpoint_format {stored_as!r}")
    rules = [object_of(rule) or {} for rule in (object_of(values.get("dynamic")) or {}).values()]
    bits = dict.fromkeys(_gptq_bits(own.get("bits", values.get("bits")), where) for own in (values, *rules))
    group_sizes = group_sizes_of(values.get("group_size"), where / "group_size")
    if group_sizes:
        others = (group_sizes_of(rule.get("group_size"), where / "dynamic.group_size") for rule in rules)
        group_sizes = group_sizes.union(*others)
    schemes = tuple(GptqScheme(own, _GPTQ_FORMATS[stored_as], group_sizes) for own in bits)
    return schemes[0] if len(schemes) == 1 else MixedScheme(schemes)


def _gptq_bits(bits: Any, where: Where) -> int:
    if type(bits) is not int or bits not in _GPTQ_BITS:
        raise where.unsupported(f"GPTQ weights of {bits!r} bits")
    return bits


def _awq(values: Mapping[str, Any], where: Where) -> Scheme:
    bits, version = values.get("bits", values.get("w_bit")), str(values.get("version", "gemm")).lower()
    if bits != 4:
        raise where.unsupported(f"AWQ weights of {bits!r} bits")
    if version != "gemm":
        raise where.unsupported(f"the AWQ version {version!r}")
    key = "q_group_size" if "q_group_size" in values else "group_size"
    return AwqScheme(group_sizes_of(values.get(key), where / key))


def _bitsandbytes(values: Mapping[str, Any], where: Where) -> Scheme:
    if values.get("load_in_4bit"):
        storage = values.get("bnb_4bit_quant_storage") or "uint8"
        if not isinstance(storage, str) or storage not in STORAGE:
            raise where.unsupported(f"the bnb_4bit_quant_storage {storage!r}")
        return BitsAndBytesScheme(4, STORAGE[storage])
    if values.get("load_in_8bit"):
        return BitsAndBytesScheme(8)
    raise where.unsupported("bitsandbytes without load_in_4bit or load_in_8bit")


_METHODS: dict[str, Callable[[Mapping[str, Any], Where], Scheme]] = {
    "fp8": _fp8,
    "fbgemm_fp8": lambda values, where: Fp8Scheme("channel"),
    "gptq": _gptq,
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": read_compressed,
}
