"""Device: the arguments of named workloads of `matmul` and `quant_matmul`, for tests, benchmarks and the tuner."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.matmul.workloads import Workload
from pallas_kernels.qtensor import ALL_SCHEMES, QTensor, encode


def spec_of(w: Workload) -> MatmulSpec:
    """The workload's static arguments."""
    return MatmulSpec(w.activation, None if w.out_dtype is None else jnp.dtype(w.out_dtype))


def types_of(w: Workload) -> tuple[str, str]:
    """Of the rows and of the weights."""
    if w.scheme is None:
        return w.dtype, w.dtype
    scheme = ALL_SCHEMES[w.scheme]
    return scheme.codes if scheme.has_coded_inputs else w.dtype, scheme.codes


def stack_shape(w: Workload) -> tuple[int, ...]:
    parts = () if w.activation is None else (2,)
    return (w.num_layers, *parts, w.num_columns, w.num_inputs)


def build(w: Workload, seed: int = 0) -> dict[str, Any]:
    """Arguments of the product of the stack's last layer; all others hold NaN. Results are of order 1."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int, scale: float = 1.0) -> jax.Array:
        return jnp.asarray(scale * rng.standard_normal(shape, np.float32), w.dtype)

    shape = stack_shape(w)
    stack = np.full(shape, np.nan, jnp.dtype(w.dtype))
    stack[-1] = normal(*shape[1:], scale=w.num_inputs**-0.5)
    arguments = {
        "x": normal(w.num_rows, w.num_inputs),
        "stack": _packed(stack, w.scheme) if w.scheme else jnp.asarray(stack),
        "layer": jnp.int32(w.num_layers - 1),
        "bias": normal(w.num_columns) if w.has_bias else None,
        "spec": spec_of(w),
    }
    if not w.is_packed:
        arguments["residual"] = normal(w.num_rows, w.num_columns) if w.has_residual else None
    return arguments


def _packed(stack: np.ndarray, name: str) -> QTensor:
    scheme = ALL_SCHEMES[name]
    codes, scales = encode(np.nan_to_num(stack.astype(np.float32)), scheme)
    scales[:-1] = np.nan
    return QTensor(jnp.asarray(codes), jnp.asarray(scales), scheme, str(stack.dtype))
