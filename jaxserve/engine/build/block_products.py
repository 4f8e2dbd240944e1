"""Wiring: which packed blocks a kind of devices multiplies as they are, without decoded weights in memory."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.dispatch import HOPPER

IsServed = Callable[[BlockForm, int, int], bool]
"""Of a matrix: its form, rows and inputs."""


def reason_for_none(platform: str, device_kind: str, num_devices: int, dtype: Any) -> str | None:
    """Why such devices multiply no blocks; None: they multiply some."""
    if platform == "cpu":
        return None
    if platform != "gpu" or not any(name in device_kind for name in HOPPER):
        return f"blocks are for CPUs and Hopper GPUs, not for {device_kind if platform == 'gpu' else platform}"
    if num_devices > 1:
        return f"on GPUs blocks are for one device, not for {num_devices}"
    if jnp.dtype(dtype) == jnp.float32:
        return "on GPUs blocks are multiplied in bfloat16, not in float32"
    return None


def is_served_on(platform: str) -> IsServed:
    """Which matrices are: on a CPU all."""

    def on_gpu(form: BlockForm, num_rows: int, num_inputs: int) -> bool:
        from pallas_kernels.quant_matmul.mosaic_gpu.blocks.block_rules import check_served

        try:
            check_served(form, num_rows, num_inputs)
        except NotImplementedError:
            return False
        return True

    return on_gpu if platform == "gpu" else lambda form, num_rows, num_inputs: True
