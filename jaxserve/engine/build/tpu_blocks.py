"""Wiring: `kept_on_tpu`: which blocks of a file stay packed on a TPU: those that its kernel multiplies."""

import jax.numpy as jnp

from checkpoints.mapping.trees import matrices
from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import abstract_mesh
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.packing import Form, Packing
from jaxserve.models.param_spec import Matrix, decoded_spec
from jaxserve.models.params import declare
from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.half_bits import with_half_bits
from pallas_kernels.block_tensor import BlockTensor, RowParts

EMBEDDING = "embed"


def kept_on_tpu(config: EngineConfig, model: ModelConfig, packing: Packing) -> Packing:
    """The packing without matrices that the kernel does not multiply, and without an embedding that is also the head,
    which is read by rows and by columns; these are decoded. Raises ConfigError where nothing is left."""
    if config.tensor_parallel_size > 1:
        raise _refusal(config, packing, "on one device, because XLA does not divide their kernel")
    bits = Packing(own=tuple((path, _with_half_bits(form)) for path, form in packing.own))
    leaves = matrices(declare(model, abstract_mesh(1), jnp.float32, packing=bits))
    reasons = {path: _reason_against(leaves[path]) for path, _ in bits.own if path != EMBEDDING}
    if model.is_tied:
        reasons[EMBEDDING] = "the embedding is the head"
    own = tuple((path, form) for path, form in bits.own if reasons.get(path) is None)
    if all(path == EMBEDDING for path, _ in own):
        raise _refusal(
            config, packing, f"where a kernel reads them: {'; '.join(sorted(set(filter(None, reasons.values()))))}"
        )
    return Packing(own=own)


def _refusal(config: EngineConfig, packing: Packing, where: str) -> ConfigError:
    return ConfigError(
        f"quantization='packed' keeps the blocks of {config.model} ({packing.name}) on a TPU only {where}",
        "quantization",
    )


def _with_half_bits(form: Form) -> Form:
    if isinstance(form, tuple):
        return tuple(map(with_half_bits, form))
    return with_half_bits(form) if isinstance(form, BlockForm) else form


def _reason_against(leaf: Matrix) -> str | None:
    """Why the kernel does not multiply a matrix; None: it does."""
    from pallas_kernels.quant_matmul.mosaic_tpu.backend import check  # imports Pallas, which takes half a second

    for part in leaf.parts if isinstance(leaf, RowParts) else (leaf,):
        *_, num_outputs, num_inputs = decoded_spec(part).shape
        assert isinstance(part, BlockTensor)
        try:
            check(part.form, num_inputs, num_outputs)
        except NotImplementedError as error:
            return str(error)
    return None
