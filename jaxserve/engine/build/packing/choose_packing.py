"""Wiring: `with_packing`: which form the matrices of a model have on the devices, as the option `quantization` says."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from checkpoints.formats.orbax_folder import OrbaxFile
from checkpoints.mapping.never_packed import CUT, ORDER_DIVIDED, NeverPacked
from checkpoints.open_checkpoint import Checkpoint
from checkpoints.quantized.forms.form_names import CODED_NAMES
from checkpoints.quantized.quantized_file import QuantizedFile
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.model_source import ModelSource, choose_dtype
from jaxserve.engine.build.packing.block_products import DeviceKind, NothingKept, form_on, kept_on
from jaxserve.engine.build.packing.coded_source import coded_while_loading
from jaxserve.engine.build.packing.fp8_products import fp8_packing
from jaxserve.engine.build.packing.layer_matrices import layer_matrices
from jaxserve.engine.build.packing.orbax_forms import saved_rows, saved_scheme
from jaxserve.engine.build.packing.stored_blocks import StoredBlocks, stored_blocks
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.packing import Packing
from pallas_kernels.qtensor import ALL_SCHEMES, FP8, SCHEMES, Scheme

FASTER = "faster than packed on CPUs"
UNREPEATED = "differ from layer to layer in no repeating order, so that a GPU's host would choose among them"


def with_packing(config: EngineConfig, source: ModelSource, device: DeviceKind | jax.Device) -> ModelSource:
    """The source with the packing of its matrices; layers that are packed differently have stacks of their own. Raises
    ConfigError where the option asks for packed weights and the file has none.

    By default rows of 8-bit codes stay packed, and blocks where a TPU or a GPU multiplies them. On a CPU blocks save
    memory and no time: SmolLM2 (Q4_1) makes 1.01, 0.92 and 0.89 of the tokens/s in bfloat16 with 1, 8 and 32 rows (two
    cores with AVX-512, Zen 4).
    """
    asked = config.quantization
    if asked in CODED_NAMES:
        return coded_while_loading(config, source, device)
    checkpoint = source.checkpoint
    if asked in SCHEMES:
        return replace(source, packing=_coded_rows(asked, checkpoint, source.model))
    if asked == "dense" or checkpoint is None:
        return _without(config, source)
    num_devices, rows = config.tensor_parallel_size, _stored_rows(checkpoint, source.model)
    if rows is not None and rows.layers != FP8:
        return replace(source, packing=rows)
    dtype = choose_dtype(config.dtype, source.model.dtype)
    may_code_inputs = rows is not None and (asked == "packed" or dtype != jnp.float32)
    if may_code_inputs and (packing := fp8_packing(device, num_devices, source.model)) is not None:
        return replace(source, packing=packing)
    found = stored_blocks(checkpoint, source.model, num_devices, form_on(device, dtype))
    others = sorted(found.never, key=lambda other: (other.where, other.form))
    if not any(found.layers) and not found.ends:
        return _without(config, source, others)
    if asked == "auto" and device.platform == "cpu":
        packing = Packing(decoded=found.apart(source.model)[1].name, reasons=(("all", FASTER),))
        return _naming(others, replace(source, packing=packing))
    chosen = _naming(others, _with_blocks(config, source, device, dtype, found))
    if asked == "packed":
        _check_shares(config, chosen.packing)
    return chosen


def _coded_rows(name: str, checkpoint: Checkpoint | None, model: ModelConfig) -> Packing:
    """That of all matrices in a scheme. Raises ConfigError for an Orbax folder that was saved from another one."""
    if checkpoint is not None and isinstance(checkpoint.file, OrbaxFile):
        return saved_scheme(name, checkpoint.file, model)
    scheme, stored = SCHEMES[name], None if checkpoint is None else _stored_scheme(checkpoint, model)
    is_stored = stored is not None and scheme.with_outliers(stored.num_outliers) == stored
    return Packing(layers=stored if is_stored else scheme, ends=scheme)


def _stored_rows(checkpoint: Checkpoint, model: ModelConfig) -> Packing | None:
    """That of a file with rows of codes."""
    if isinstance(checkpoint.file, OrbaxFile):
        return saved_rows(checkpoint.file, model)
    scheme = _stored_scheme(checkpoint, model)
    return None if scheme is None else Packing(layers=scheme)


def _stored_scheme(checkpoint: Checkpoint, model: ModelConfig) -> Scheme | None:
    """Of the layers, with the outliers that the file has for it."""
    if not isinstance(checkpoint.file, QuantizedFile):
        return None
    names = layer_matrices(checkpoint, model)
    name = checkpoint.file.row_scheme(names)
    if name is None:
        return None
    has_outliers = name in SCHEMES and SCHEMES[name].has_coded_inputs
    return ALL_SCHEMES[name].with_outliers(checkpoint.file.num_outliers(names) if has_outliers else 0)


def _with_blocks(
    config: EngineConfig, source: ModelSource, device: DeviceKind | jax.Device, dtype: Any, found: StoredBlocks
) -> ModelSource:
    """Those that stay packed on such devices, the others decoded. Raises ConfigError where none does that must."""
    model, packing = found.apart(source.model)
    try:
        kept = kept_on(device, config.tensor_parallel_size, dtype, model, packing)
        return _with_kept(source, device, found, found.kept(model, kept), kept.reasons)
    except NothingKept as reason:
        if config.quantization == "auto":
            return replace(source, packing=Packing(decoded=packing.name, reasons=(("all", str(reason)),)))
        raise ConfigError(
            f"quantization='packed' cannot keep the blocks of {config.model} ({packing.name}): {reason}. "
            f"Leave it out, or name a scheme ({', '.join(SCHEMES)})",
            "quantization",
        ) from reason


def _with_kept(
    source: ModelSource,
    device: DeviceKind | jax.Device,
    stored: StoredBlocks,
    kept: StoredBlocks,
    reasons: tuple[tuple[str, str], ...],
) -> ModelSource:
    """Layers that differ only in what is decoded share a stack. Raises NothingKept."""
    repeating = kept.repeating(source.model, device.platform)
    if not any(repeating.layers):
        raise NothingKept(f"all forms of the layers {UNREPEATED}")
    lost = sorted(
        {leaf for one, other in zip(kept.layers, repeating.layers, strict=True) for leaf in one.keys() - other}
    )
    reasons = (*reasons, *((leaf, f"its forms {UNREPEATED}") for leaf in lost))
    model, packing = repeating.apart(source.model)
    packing = replace(packing, decoded=stored.names_without(repeating), reasons=reasons)
    return replace(source, model=model, packing=packing)


def _naming(others: Sequence[NeverPacked], source: ModelSource) -> ModelSource:
    """The same, whose packing also names what never stays packed."""
    if not others:
        return source
    names = [name for name in source.packing.decoded.split(", ") if name]
    decoded = ", ".join(sorted({*names, *(other.form for other in others)}))
    reasons = dict.fromkeys((*source.packing.reasons, *((other.where, other.reason) for other in others)))
    return replace(source, packing=replace(source.packing, decoded=decoded, reasons=tuple(reasons)))


def _check_shares(config: EngineConfig, packing: Packing) -> None:
    """Raises ConfigError where devices would have parts of blocks, or of an order."""
    leaves = {
        refused: sorted({where.rpartition("/")[2] for where, reason in packing.reasons if reason == refused})
        for refused in (CUT, ORDER_DIVIDED)
    }
    found = [f"{', '.join(own)}: {reason}" for reason, own in leaves.items() if own]
    if found:
        raise ConfigError(
            f"quantization='packed' cannot divide the weights of {config.model} over {config.tensor_parallel_size} "
            f"devices ({'; '.join(found)}): use fewer devices, or leave it out, and these are decoded",
            "quantization",
        )


def _without(config: EngineConfig, source: ModelSource, others: Sequence[NeverPacked] = ()) -> ModelSource:
    if config.quantization == "packed":
        found = "".join(f" ({other.where}: {other.reason})" for other in others)
        raise ConfigError(
            f"quantization='packed' keeps weights as the file has them: rows of 8-bit codes, or blocks of "
            f"codes with scales. {config.model} has none that can stay so{found}: leave it out, or name a scheme "
            f"({', '.join(SCHEMES)})",
            "quantization",
        )
    return _naming(others, source)
