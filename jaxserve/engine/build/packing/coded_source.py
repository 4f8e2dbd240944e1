"""Wiring: `coded_while_loading`: a model whose matrices of layers get codes of 4 or 8 bits by name, as they are read.

Their values are those that `jaxserve quantize` writes with the scheme of this name, bit for bit. Embedding, head and
norms stay as they are.
"""

from dataclasses import replace
from typing import cast

import jax
import jax.numpy as jnp

from checkpoints.formats.orbax_folder import OrbaxFile
from checkpoints.mapping.trees import matrices
from checkpoints.open_checkpoint import Checkpoint
from checkpoints.quantized.coded_file import BlockCoding, CodedFile, Coding
from checkpoints.quantized.forms.all_forms import FORMS
from checkpoints.quantized.quantized_weight import Misfit
from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import abstract_mesh
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.model_source import ModelSource, choose_dtype
from jaxserve.engine.build.packing.block_products import DeviceKind, NothingKept, form_on, kept_on
from jaxserve.engine.build.packing.fp8_products import fp8_packing
from jaxserve.engine.build.packing.layer_matrices import layer_matrices
from jaxserve.engine.build.packing.orbax_forms import not_coded
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.packing import Packing
from jaxserve.models.param_spec import decoded_spec
from jaxserve.models.params import declare
from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.qtensor import FP8

ONE = abstract_mesh(1)


def coded_while_loading(config: EngineConfig, source: ModelSource, device: DeviceKind | jax.Device) -> ModelSource:
    """The source with codes of `config.quantization`, which stay packed where the device multiplies them. Elsewhere
    fp8 is decoded, and the others raise ConfigError."""
    name = config.quantization
    coding = cast(Coding, FORMS[name])
    if source.checkpoint is not None and isinstance(source.checkpoint.file, OrbaxFile):
        raise not_coded(source.checkpoint.file, name)
    if name == FP8.name and (multiplied := fp8_packing(device, config.tensor_parallel_size, source.model)) is not None:
        return replace(source, packing=multiplied)
    names = frozenset[str]()
    if source.checkpoint is not None:
        names = _names(config, source.model, source.checkpoint)
    packing = Packing(decoded=name)
    if isinstance(coding, BlockCoding):
        packing = _kept(config, source.model, coding.block_form(), device)
    elif source.checkpoint is None:
        raise _fault(config, "it would not change the size of random weights: leave it out")
    if source.checkpoint is None:
        return replace(source, packing=packing)
    coded = replace(source.checkpoint, file=CodedFile(source.checkpoint.file, coding, names))
    return replace(source, checkpoint=coded, packing=packing)


def _names(config: EngineConfig, model: ModelConfig, checkpoint: Checkpoint) -> frozenset[str]:
    """The tensors that have codes. Raises ConfigError for one of a shape that has none."""
    names = layer_matrices(checkpoint, model)
    for name in sorted(names):
        num_out, num_in = checkpoint.tensors[name].shape
        try:
            FORMS[config.quantization].parts((num_out, num_in))
        except Misfit as misfit:
            raise _fault(config, f"{name} has no such codes: {misfit}") from misfit
    return names


def _kept(config: EngineConfig, model: ModelConfig, form: BlockForm, device: DeviceKind | jax.Device) -> Packing:
    """The matrices of the layers that are multiplied as codes; the others are decoded."""
    num_devices, dtype = config.tensor_parallel_size, choose_dtype(config.dtype, model.dtype)
    on_device = form_on(device, dtype)
    specs = {path: decoded_spec(leaf) for path, leaf in matrices(declare(model, ONE, jnp.float32)).items()}
    packed = matrices(declare(model, ONE, jnp.float32, packing=Packing(layers=form)))
    paths = [path for path, leaf in packed.items() if isinstance(leaf, BlockTensor)]
    for path in paths:
        if specs[path].shape[-1] % form.block_len:
            raise _fault(config, f"{path} has {specs[path].shape[-1]} inputs, no multiple of {form.block_len}")
    # A device's share of the inputs is a number of whole groups.
    shares = {path: num_devices if specs[path].axes[-1] is not None else 1 for path in paths}
    own = tuple(
        (path, on_device(form, specs[path].shape[-1] // shares[path]))
        for path in paths
        if specs[path].shape[-1] % (form.block_len * shares[path]) == 0
    )
    try:
        packing = kept_on(device, num_devices, dtype, model, Packing(own=own))
    except NothingKept as reason:
        advice = "name int8 or w8a8, or load what `jaxserve quantize` writes with this scheme, which is decoded"
        raise _fault(config, f"the codes are not multiplied here ({reason}): {advice}") from reason
    return replace(packing, decoded="" if len(packing.own) == len(paths) else config.quantization)


def _fault(config: EngineConfig, message: str) -> ConfigError:
    return ConfigError(f"quantization={config.quantization!r}: {message}", "quantization")
