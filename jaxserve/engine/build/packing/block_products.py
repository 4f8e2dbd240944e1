"""Wiring: `kept_on`: which packed blocks of a file stay so on devices: those that are multiplied as they are there.

Where inputs are divided over devices they must be in order, or a device would need inputs that others have. On TPUs and
GPUs these are the blocks that a kernel reads: XLA would write what it decodes to memory, on a v6e with copies of whole
stacks.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh

from checkpoints.mapping.never_packed import ORDER_DIVIDED
from checkpoints.mapping.trees import matrices
from jaxserve.core.hardware.mesh import abstract_mesh, num_shards
from jaxserve.engine.build.packing.nested_scales import with_served_scales
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.packing import Packing
from jaxserve.models.param_spec import Matrix, ParamSpec, decoded_spec
from jaxserve.models.params import declare
from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.half_bits import with_half_bits
from pallas_kernels.block_forms.packed_zeros import with_packed_zeros
from pallas_kernels.block_forms.wide_blocks import with_wide_blocks
from pallas_kernels.block_tensor import BlockTensor, RowParts
from pallas_kernels.dispatch import HOPPER

EMBEDDING = "embed"


class DeviceKind(NamedTuple):
    """What is asked of devices; JAX's have it, too."""

    platform: str
    device_kind: str = ""


class NothingKept(Exception):
    """Why nothing stays packed."""


def form_on(device: DeviceKind | jax.Device, dtype: Any) -> Callable[[BlockForm, int], BlockForm]:
    """The form in which a device has blocks of a file's form, in rows of which it has so many inputs: zero points are
    packed where that saves memory, kernels read longer runs than Q5_0 and Q5_1 have, the TPU's takes no float16, and
    scales of double quantization may be numbers (`nested_scales.py`)."""
    scales = jnp.dtype(dtype).name

    def on_device(form: BlockForm, num_inputs: int) -> BlockForm:
        form = with_served_scales(with_packed_zeros(form, num_inputs), device.platform, scales, num_inputs)
        if device.platform == "tpu":
            return with_half_bits(with_wide_blocks(form, num_inputs))
        if device.platform == "gpu":
            return with_wide_blocks(form, num_inputs)
        return form

    return on_device


def kept_on(
    device: DeviceKind | jax.Device, num_devices: int, dtype: Any, model: ModelConfig, packing: Packing
) -> Packing:
    """The packing, of forms on such devices (`form_on`), without matrices that these do not multiply, which are
    `decoded`, for `reasons`. Raises `NothingKept`."""
    is_cpu, is_tpu = device.platform == "cpu", device.platform == "tpu"
    if not is_cpu:
        _check_devices(device, dtype)
    mesh = abstract_mesh(num_devices)
    leaves = matrices(declare(model, mesh, jnp.float32, packing=packing))
    reasons = {path: _of_an_order(leaves[path], num_devices) for path, _ in packing.own}
    if not is_cpu:
        of_kernels = _of_kernels(reasons, leaves, model, mesh, is_tpu=is_tpu)
        reasons = {path: reason or of_kernels[path] for path, reason in reasons.items()}
    own = tuple((path, form) for path, form in packing.own if reasons[path] is None)
    if not own or (not is_cpu and all(path == EMBEDDING for path, _ in own)):
        found = sorted({reason for reason in reasons.values() if reason is not None})
        raise NothingKept("; ".join(found or ["only the embedding has blocks, and it is not multiplied"]))
    rest = Packing(own=tuple(item for item in packing.own if reasons[item[0]] is not None))
    why = tuple((path, reason) for path, reason in reasons.items() if reason is not None)
    return Packing(own=own, decoded=rest.name, reasons=why)


def _of_an_order(leaf: Matrix, num_devices: int) -> str | None:
    parts = leaf.parts if isinstance(leaf, RowParts) else (leaf,)
    has_order = any(isinstance(part, BlockTensor) and part.form.has_order for part in parts)
    if num_devices == 1 or not has_order or decoded_spec(leaf).axes[-1] is None:
        return None
    return ORDER_DIVIDED


def _of_kernels(
    paths: Iterable[str], leaves: Mapping[str, Matrix], model: ModelConfig, mesh: AbstractMesh, *, is_tpu: bool
) -> dict[str, str | None]:
    reasons = {path: _reason_against(path, leaves[path], mesh, is_tpu) for path in paths}
    if not model.is_tied:  # then it is looked up, not multiplied
        reasons[EMBEDDING] = None
    return reasons


def _check_devices(device: DeviceKind | jax.Device, dtype: Any) -> None:
    is_hopper = any(name in device.device_kind for name in HOPPER)
    if device.platform != "tpu" and not is_hopper:
        raise NothingKept(f"blocks are for CPUs, TPUs and Hopper GPUs, not for {device.device_kind}")
    if is_hopper and jnp.dtype(dtype) == jnp.float32:
        raise NothingKept("on GPUs blocks are multiplied in bfloat16, not in float32")


def _reason_against(path: str, leaf: Matrix, mesh: AbstractMesh, is_tpu: bool) -> str | None:
    """Why the kernel does not multiply each device's part of a matrix; None: it does."""
    for part in leaf.parts if isinstance(leaf, RowParts) else (leaf,):
        *out, num_inputs = shape_on_device(decoded_spec(part), mesh)
        assert isinstance(part, BlockTensor)
        try:
            # Pallas takes half a second to import.
            if is_tpu:
                from pallas_kernels.quant_matmul.mosaic_tpu.backend import check

                check(part.form, num_inputs)
            else:
                from pallas_kernels.quant_matmul.mosaic_gpu.blocks.block_rules import check_served

                check_served(part.form, num_columns(path, out), num_inputs)
        except NotImplementedError as error:
            return str(error)
    return None


def shape_on_device(spec: ParamSpec, mesh: AbstractMesh) -> list[int]:
    """Of one device's part. Files of which devices would have parts of blocks were sorted out before."""
    return [
        size if axis is None else size // num_shards(mesh, axis)
        for size, axis in zip(spec.shape, spec.axes, strict=True)
    ]


def num_columns(path: str, out: Sequence[int]) -> int:
    """Outputs of one product: of one layer, and of a gate or its other half. out: the axes of a leaf's outputs."""
    own = out[1:] if path.startswith("layers/") else out
    return math.prod(own[1:] if path.endswith("/gate_up") else own)
