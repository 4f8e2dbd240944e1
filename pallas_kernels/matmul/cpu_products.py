"""Device: `cpu_product`, how XLA on CPU multiplies fastest; which form is fastest depends on the processor.

XLA's library for products on CPU (YNNPACK) packs the right operand in each call. It multiplies bfloat16 by AMX or
AVX-512 where the processor can; without AMX an Intel Xeon multiplied many rows faster in float32.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Num

BF16, F32, INT8 = jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.float32), jnp.dtype(jnp.int8)
MAX_WIDE_BYTES = 2**26
"""Of a matrix converted to float32: twice that of Llama 3.2 1B's MLP, and no head."""
MAX_LEFT_CODES = 2**24
"""Of a matrix of int8 that is the left operand: no head, whose outputs take longer to transpose than this saves (8 rows
on two cores of an EPYC: 3.9 ms, not 2.5; in float32 5.5, and 9.2 on the right)."""


@dataclass(frozen=True, slots=True)
class CpuRule:
    """max_left_rows: of x, up to which weights are the left operand, by dtype. min_wide_rows: of bfloat16, from which
    on both operands are converted to float32; None: never. Sums are float32 in every form; their order differs.
    Of packed weights, which are decoded some rows at a time (`quant_matmul/block_rows.py`): min_bf16_rows: of x in
    bfloat16, from which on decoded rows are rounded to bfloat16, too; None: never. tile_bytes: of decoded rows, at
    most."""

    name: str
    max_left_rows: dict[jnp.dtype, int]
    min_wide_rows: int | None = None
    min_bf16_rows: int | None = 1
    tile_bytes: int = 2**20


AMX = CpuRule("AMX", {BF16: 64, F32: 8})
"""SmolLM2's layers and head on two cores of an Intel Xeon, with the weights on the right and on the left: 22 and 13 ms
for 2 rows of bfloat16, 25 and 19 for 32, 52 and 55 for 128; 45 and 31 ms for 2 rows of float32, 66 and 74 for 32."""
ZEN4 = CpuRule("Zen 4", {F32: 64, INT8: 16}, min_bf16_rows=16, tile_bytes=2**23)
"""AMD's processors from Zen 4 on multiply bfloat16 by AVX-512 twice as fast as float32. A layer of SmolLM2 on two cores
of an EPYC, with the weights on the right and on the left: 0.51 and 0.63 ms for 2 rows of bfloat16, 1.08 and 0.98 for
32, 2.6 and 2.8 for 128, 9.0 and 12.9 for 512, where float32 takes 17.3; 0.96 and 0.55 ms for 2 rows of float32, 2.0 and
1.4 for 32, 3.1 and 2.5 for 64; of int8 0.36 and 0.27 for 8, 0.88 and 0.88 for 64. All layers and the head, packed as
Q4_1 and Q8_0, with tiles of 1 and 8 MiB: 44 and 38 ms for 8 rows of bfloat16, 73 and 60 for 32; with decoded rows in
float32 28 for 8, 51 for 16 (in bfloat16 52), 76 for 32; weights in bfloat16 take 25 to 30, 35 to 40 and 50."""
OTHER = CpuRule("other", {F32: 8}, min_wide_rows=128, min_bf16_rows=None)
"""SmolLM2 on two cores of an Intel Xeon whose AMX is hidden: 16 and 35 ms for 2 rows of bfloat16, 26 and 38 for 8; a
layer of 512 rows in bfloat16 and in float32 24 and 15 ms, of 128 rows 6.4 and 5.7, of 64 rows 3.4 and 3.6. Tiles of
half and twice as many bytes take up to 1.1 times as long for SmolLM2's matrices, on two cores with AVX2."""
BY_WORDS = ((frozenset({"amx_bf16"}), AMX), (frozenset({"AuthenticAMD", "avx512_bf16"}), ZEN4))
"""By what Linux says of a processor."""


@cache
def cpu_rule() -> CpuRule:
    """That of this machine's processor."""
    info = Path("/proc/cpuinfo")
    found = set(info.read_text().split()) if info.exists() else set[str]()
    return next((rule for words, rule in BY_WORDS if words <= found), OTHER)


def cpu_product(x: Num[Array, "T I"], rows: Num[Array, "*out I"], dtype: jnp.dtype) -> Num[Array, "T *out"]:
    """x · rowsᵀ"""
    rule, num_rows = cpu_rule(), len(x)
    if num_rows == 1:  # for which XLA has a scalar loop: 387 us for 576 x 576 weights, where two rows take 47
        x = jnp.concatenate([x, x])
    if num_rows <= rule.max_left_rows.get(x.dtype, 0) and (x.dtype != INT8 or rows.size <= MAX_LEFT_CODES):
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
