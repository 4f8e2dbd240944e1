"""Wiring: `with_packing`: which form the matrices of a model have on the devices, as the option `quantization` says."""

from collections import defaultdict
from dataclasses import replace

import jax
import jax.numpy as jnp

from checkpoints.mapping.stored_forms import Forms, stored_forms
from checkpoints.mapping.trees import matrices
from checkpoints.quantized.forms.form_names import CODED_NAMES
from checkpoints.quantized.quantized_file import QuantizedFile
from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import abstract_mesh
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.block_products import DeviceKind, NothingKept, kept_on
from jaxserve.engine.build.coded_source import coded_while_loading
from jaxserve.engine.build.fp8_products import fp8_packing
from jaxserve.engine.build.model_source import ModelSource, choose_dtype
from jaxserve.models.config.model_config import ModelConfig, Stack
from jaxserve.models.packing import Packing
from jaxserve.models.param_spec import decoded_spec
from jaxserve.models.params import declare
from jaxserve.runner.load_weights import TENSOR_NAMES, dims
from pallas_kernels.qtensor import FP8, SCHEMES

ONE = abstract_mesh(1)


def with_packing(config: EngineConfig, source: ModelSource, device: DeviceKind | jax.Device) -> ModelSource:
    """The source with the packing of its matrices; layers that are packed differently have stacks of their own. Raises
    ConfigError where the option asks for packed weights and the file has none.

    By default rows of 8-bit codes stay packed, and blocks where a TPU or a GPU multiplies them. On a CPU they do not:
    on two cores with AVX2 8 rows of SmolLM2 (Q4_1) decode at 75 to 80 tokens/s packed and at 106 to 110 in bfloat16.
    """
    asked = config.quantization
    if asked in CODED_NAMES:
        return coded_while_loading(config, source, device)
    if asked in SCHEMES:
        return replace(source, packing=Packing(layers=SCHEMES[asked], ends=SCHEMES[asked]))
    file = None if source.checkpoint is None else source.checkpoint.file
    if asked == "dense" or file is None:
        return _without(config, source)
    num_devices = config.tensor_parallel_size
    stored = file.row_scheme if isinstance(file, QuantizedFile) else None
    if stored in SCHEMES:
        return replace(source, packing=Packing(layers=SCHEMES[stored]))
    if stored == FP8.name and (packing := fp8_packing(device, num_devices, source.model)) is not None:
        return replace(source, packing=packing)
    found = _as_stored(source, num_devices)
    if found is None:
        return _without(config, source)
    name = found.packing.name
    if asked == "auto" and device.platform == "cpu":
        return replace(source, packing=Packing(decoded=name))
    dtype = choose_dtype(config.dtype, source.model.dtype)
    try:
        packing = kept_on(device, num_devices, dtype, found.model, found.packing)
    except NothingKept as reason:
        if asked == "auto":
            return replace(source, packing=Packing(decoded=name, reasons=(("all", str(reason)),)))
        raise ConfigError(
            f"quantization='packed' cannot keep the blocks of {config.model} ({name}): {reason}. "
            f"Leave it out, or name a scheme ({', '.join(SCHEMES)})",
            "quantization",
        ) from reason
    return replace(found, packing=packing)


def _without(config: EngineConfig, source: ModelSource) -> ModelSource:
    if config.quantization == "packed":
        raise ConfigError(
            f"quantization='packed' keeps weights as the file has them: rows of 8-bit codes, or blocks of "
            "codes with scales. "
            f"{config.model} has neither: leave it out, or name a scheme ({', '.join(SCHEMES)})",
            "quantization",
        )
    return source


def _as_stored(source: ModelSource, num_devices: int) -> ModelSource | None:
    """None where no matrix can stay packed."""
    checkpoint, model = source.checkpoint, source.model
    if checkpoint is None or checkpoint.spelling not in ("hf", "gguf"):
        return None
    specs = {path: decoded_spec(leaf) for path, leaf in matrices(declare(model, ONE, jnp.float32)).items()}
    shapes = {path: spec.shape for path, spec in specs.items()}
    divided = {path for path, spec in specs.items() if spec.axes[-1] is not None}
    rules = TENSOR_NAMES[model.family].rules(checkpoint.spelling, dims(model, ONE))
    layers, ends = stored_forms(checkpoint.file, rules, shapes, model.num_layers, num_devices, divided)
    if not any(layers) and not ends:
        return None
    apart, names = _split(model, layers)
    of_stacks = {f"layers/{name}/{leaf}": form for name, forms in names.items() for leaf, form in forms.items()}
    return replace(source, model=apart, packing=Packing(own=tuple((of_stacks | ends).items())))


def _split(model: ModelConfig, layers: list[Forms]) -> tuple[ModelConfig, dict[str, Forms]]:
    """The model with a stack for each kind of layers and forms of their matrices, and the forms by stack."""
    variants: dict[int, list[Forms]] = defaultdict(list)
    for stack, forms in zip(model.layer_stacks, layers, strict=True):
        if forms not in variants[stack]:
            variants[stack].append(forms)
    stacks, names = list[Stack](), dict[str, Forms]()
    index = dict[tuple[int, int], int]()
    for number, stack in enumerate(model.stacks):
        for i, forms in enumerate(variants[number]):
            index[number, i] = len(stacks)
            stacks.append(stack if len(variants[number]) == 1 else replace(stack, name=f"{stack.name}_{i}"))
            names[stacks[-1].name] = forms
    layer_stacks = tuple(
        index[stack, variants[stack].index(forms)] for stack, forms in zip(model.layer_stacks, layers, strict=True)
    )
    return replace(model, stacks=tuple(stacks), layer_stacks=layer_stacks), names
