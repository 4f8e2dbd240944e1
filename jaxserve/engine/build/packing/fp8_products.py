"""Wiring: `fp8_packing`: whether devices multiply FP8 by FP8: a TPU7x and Hopper GPUs do, twice as fast as bfloat16.

On Hopper the kernel of few rows does: XLA would copy a layer's codes before each product. It still copies them in steps
of more than 256 tokens, whose products take longer than the copies.
"""

import jax
import jax.numpy as jnp

from checkpoints.mapping.trees import matrices
from jaxserve.core.hardware.mesh import abstract_mesh
from jaxserve.engine.build.packing.block_products import DeviceKind, num_columns, shape_on_device
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.packing import Packing
from jaxserve.models.param_spec import decoded_spec
from jaxserve.models.params import declare
from pallas_kernels.dispatch import HOPPER
from pallas_kernels.qtensor import FP8, QTensor

TPU = "TPU7x"


def fp8_packing(device: DeviceKind | jax.Device, num_devices: int, model: ModelConfig) -> Packing | None:
    """Of the layers' matrices; None where the devices do not multiply them as codes."""
    packing = Packing(layers=FP8)
    if TPU in device.device_kind:
        return packing
    is_hopper = any(name in device.device_kind for name in HOPPER)
    return packing if is_hopper and _are_served(model, num_devices, packing) else None


def _are_served(model: ModelConfig, num_devices: int, packing: Packing) -> bool:
    from pallas_kernels.matmul.mosaic_gpu.backend import check_shape  # Pallas takes half a second to import.

    mesh = abstract_mesh(num_devices)
    try:
        for path, leaf in matrices(declare(model, mesh, jnp.float32, packing=packing)).items():
            if isinstance(leaf, QTensor):
                *out, num_inputs = shape_on_device(decoded_spec(leaf), mesh)
                check_shape(num_columns(path, out), num_inputs)
    except NotImplementedError:
        return False
    return True
