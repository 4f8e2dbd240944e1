"""Device: `cpu_product`, how XLA on CPU multiplies fastest; which form is fastest depends on the processor.

XLA's library for products on CPU (YNNPACK) packs the right operand in each call. It multiplies bfloat16 by AMX where
the processor has it, else by AVX-512, in which products of many rows are faster in float32.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

BF16, F32 = jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.float32)
MAX_WIDE_BYTES = 2**26
"""Of a matrix converted to float32: twice that of Llama 3.2 1B's MLP, and no head."""


@dataclass(frozen=True, slots=True)
class CpuRule:
    """max_left_rows: of x, up to which weights are the left operand, by dtype. min_wide_rows: of bfloat16, from which
    on both operands are converted to float32; None: never. Sums are float32 in every form; their order differs."""

    max_left_rows: dict[jnp.dtype, int]
    min_wide_rows: int | None


AMX = CpuRule({BF16: 64, F32: 8}, None)
"""SmolLM2's layers and head on two cores of an Intel Xeon, with the weights on the right and on the left: 22 and 13 ms
for 2 rows of bfloat16, 25 and 19 for 32, 52 and 55 for 128; 45 and 31 ms for 2 rows of float32, 66 and 74 for 32."""
NO_AMX = CpuRule({F32: 8}, 128)
"""The same on two cores of a Xeon whose AMX is hidden: 16 and 35 ms for 2 rows of bfloat16, 26 and 38 for 8; a layer of
512 rows in bfloat16 and in float32 24 and 15 ms, of 128 rows 6.4 and 5.7, of 64 rows 3.4 and 3.6."""


@cache
def has_amx() -> bool:
    """Whether this machine's processor multiplies bfloat16 by AMX, as far as Linux says."""
    info = Path("/proc/cpuinfo")
    return info.exists() and " amx_bf16" in info.read_text()


def cpu_product(x: Float[Array, "T I"], rows: Float[Array, "*out I"], dtype: jnp.dtype) -> Float[Array, "T *out"]:
    """x · rowsᵀ"""
    rule = AMX if has_amx() else NO_AMX
    num_rows = len(x)
    if num_rows == 1:  # for which XLA has a scalar loop: 387 us for 576 x 576 weights, where two rows take 47
        x = jnp.concatenate([x, x])
    if num_rows <= rule.max_left_rows.get(x.dtype, 0):
        y = lax.optimization_barrier(contract(rows, x, dtype))  # else XLA exchanges the operands instead of transposing
        y = jnp.moveaxis(y, -1, 0)
    elif x.dtype == BF16 and num_rows >= (rule.min_wide_rows or num_rows + 1) and 4 * rows.size <= MAX_WIDE_BYTES:
        y = contract(x.astype(F32), rows.astype(F32), F32).astype(dtype)
    else:
        y = contract(x, rows, dtype)
    return y[:num_rows]


def contract(a: jax.Array, b: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """a · bᵀ"""
    # float32 operands need the highest precision: otherwise TPUs and GPUs round them.
    precision = lax.Precision.HIGHEST if a.dtype == F32 else None
    dims = (((a.ndim - 1,), (b.ndim - 1,)), ((), ()))
    return lax.dot_general(a, b, dims, precision=precision, preferred_element_type=dtype)
