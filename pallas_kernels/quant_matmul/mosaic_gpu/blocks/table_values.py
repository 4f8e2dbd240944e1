"""Device: `table_values`: the values of 4-bit codes in registers, of a table such as NF4's.

A byte permutation looks up one byte of 8 values for both codes of a word. 16 values of 16 bits take four of them:

    word               0 0 0 c  0 0 0 d      c, d: codes, in the lowest bits of the halves
    selectors of bytes     0 c  0 d          without the highest bit of the codes, which chooses among the two tables
    low bytes, high        l l  l l  h h  h h
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, UInt32

from pallas_kernels.quant_matmul.mosaic_gpu.blocks.register_views import table_bytes

NUM_VALUES = 16
LOW_BYTES = 0x00FF00FF


def table_values(codes: UInt32[Array, "64 words"], values: Sequence[float], dtype: Any) -> UInt32[Array, "64 words"]:
    """The bits of values[code] in each half of a word, rounded to a type of 16 bits. codes: in the lowest four bits of
    the halves, whose other bits are 0."""
    by_byte = np.asarray(values, dtype).view(np.uint8).reshape(NUM_VALUES, 2)
    index = codes & jnp.uint32(0x00070007)
    low_digits = index | (index >> jnp.uint32(8))  # of bytes 0 and 2 of the result, digits 0 and 2
    high_digits = low_digits << jnp.uint32(4)

    def of_eight(first: int) -> UInt32[Array, "64 words"]:
        low, high = (by_byte[first : first + 8, i].tolist() for i in (0, 1))
        low, high = table_bytes(low, low_digits), table_bytes(high, high_digits)
        return (low & jnp.uint32(LOW_BYTES)) | (high & jnp.uint32(~LOW_BYTES & 0xFFFFFFFF))

    is_upper = (codes >> jnp.uint32(3)) & jnp.uint32(0x00010001)
    mask = (is_upper << jnp.uint32(16)) - is_upper  # all bits of a half
    lower, upper = of_eight(0), of_eight(8)
    return lower ^ ((lower ^ upper) & mask)
