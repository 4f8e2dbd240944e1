"""One check for all back ends of `matmul`: a workload's result against the float64 reference, and its bounds."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.matmul.api import matmul
from pallas_kernels.matmul.block_sizes import BlockSizes
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.matmul.workload_arguments import build
from pallas_kernels.matmul.workloads import Workload
from pallas_kernels.qtensor import QTensor
from pallas_kernels.quant_matmul.api import quant_matmul

BOUNDS = {
    # Sums of up to 14,336 products in float32, whose roundings of 2^-24 mostly cancel.
    "float32": 1e-5,
    # One rounding of the result, by up to 2^-8 of its size.
    "bfloat16": 2**-8,
    # Likewise, with three bits more.
    "float16": 2**-11,
}
"""Largest error by the result's type, as a share of the row's largest element."""
XLA_ROUNDINGS = 4
"""XLA also rounds each product, the activation, and what is added, each of up to the size of that element."""

FIELDS = {field.name for field in fields(MatmulSpec)}


def errors(y: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """[T]: the largest deviation of a row, as a share of its largest element; infinite for what is not a number."""
    deviation = np.abs(y - expected).max(-1) / np.abs(expected).max(-1)
    return np.where(np.isnan(deviation), np.inf, deviation)


def op_of(stack: jax.Array | QTensor) -> Callable[..., jax.Array]:
    """The product of such weights."""
    return quant_matmul if isinstance(stack, QTensor) else matmul


def bound_of(workload: Workload) -> float:
    """Of the kernel's error, which rounds once."""
    return BOUNDS[workload.out_dtype or workload.dtype]


def multiply(arguments: dict[str, Any], **changes: Any) -> np.ndarray:
    """The result of a call with other arrays, and with other values in the fields of its spec; float32 holds it."""
    of_spec = {name: changes.pop(name) for name in FIELDS & changes.keys()}
    arrays = arguments | changes
    spec = replace(arrays.pop("spec"), **of_spec)
    return np.asarray(jax.jit(partial(op_of(arrays["stack"]), spec=spec))(**arrays)).astype(np.float32)


def truth(arguments: dict[str, Any]) -> np.ndarray:
    """The reference in float64 on the same numbers."""
    with jax.enable_x64(True):
        arrays = arguments | {"x": jnp.asarray(arguments["x"], jnp.float64)}
        spec = replace(arrays.pop("spec"), backend="reference", out_dtype=jnp.dtype(jnp.float64))
        return np.asarray(op_of(arrays["stack"])(**arrays, spec=spec))


@cache
def expected_of(workload: Workload) -> np.ndarray:
    return truth(build(workload))


def check(workload: Workload, backend: str, block: BlockSizes | None = None) -> np.ndarray:
    """The result, which is within its bound."""
    y = multiply(build(workload), backend=backend, block=block)
    bound = bound_of(workload) * (XLA_ROUNDINGS if backend == "xla" else 1)
    expected = expected_of(workload)
    assert errors(y, expected).max() <= bound
    assert np.abs(expected).max() > 0.1
    return y
