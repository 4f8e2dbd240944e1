"""One check of products with packed blocks: the kernel's result against the float64 reference, and its bound."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.matmul.block_sizes import BlockSizes
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.quant_matmul.api import quant_matmul
from tests.pallas_kernels.matmul.matmul_checks import BOUNDS, errors
from tests.pallas_kernels.quant_matmul.block_stacks import FORMS, NESTED_FORMS, block_stack

ROUNDINGS = 2
"""Of the weights and of the result; with a gate, of which each half has them, twice as many."""


@dataclass(frozen=True)
class Case:
    """A product with the last layer of a stack of blocks."""

    name: str
    form: str
    num_rows: int
    num_columns: int
    num_inputs: int
    activation: str | None = None
    has_bias: bool = False
    dtype: str = "bfloat16"
    out_dtype: str | None = None
    block: BlockSizes | None = None
    num_layers: int = 2

    @property
    def spec(self) -> MatmulSpec:
        out_dtype = None if self.out_dtype is None else jnp.dtype(self.out_dtype)
        return MatmulSpec(self.activation, out_dtype, backend="mosaic_gpu", block=self.block)

    @property
    def bound(self) -> float:
        return ROUNDINGS * BOUNDS[self.dtype] * (1 if self.activation is None else 2)

    def arguments(self) -> dict[str, Any]:
        rng, parts = np.random.default_rng(1), () if self.activation is None else (2,)
        out = (*parts, self.num_columns)
        return {
            "x": jnp.asarray(rng.normal(size=(self.num_rows, self.num_inputs)), self.dtype),
            "stack": block_stack((FORMS | NESTED_FORMS)[self.form], self.num_layers, out, self.num_inputs),
            "layer": jnp.int32(self.num_layers - 1),
            "bias": jnp.asarray(rng.normal(size=self.num_columns), self.dtype) if self.has_bias else None,
        }


def multiply(case: Case, **changes: Any) -> np.ndarray:
    """The kernel's result."""
    return np.asarray(jax.jit(partial(quant_matmul, spec=case.spec))(**case.arguments() | changes), np.float32)


def truth(case: Case) -> np.ndarray:
    """The reference in float64 on the same numbers."""
    with jax.enable_x64(True):
        arguments = case.arguments()
        spec = replace(case.spec, backend="reference", out_dtype=jnp.dtype(jnp.float64), block=None)
        arguments["x"] = jnp.asarray(arguments["x"], jnp.float64)
        return np.asarray(quant_matmul(**arguments, spec=spec))


def check(case: Case) -> np.ndarray:
    """The kernel's result, which is within its bound."""
    y = multiply(case)
    assert errors(y, truth(case)).max() <= case.bound
    return y
