"""Device: `table_values`: the values of 4-bit codes in registers, of a table such as NF4's.

A byte permutation looks up a byte of one of 8 values for both codes of a word. 16 values of 16 bits take four of them:

    word, in hexadecimal digits    000d 000c        c, d: codes, in the lowest bits of the halves
    selectors of the low bytes         0d 0c        the codes without their highest bit
    selectors of the high bytes        d0 c0
    result                        HL   HL           H, L: high and low byte of a value

The highest bit of a code chooses between the results of the lower and the upper 8 values.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, UInt32

from pallas_kernels.quant_matmul.mosaic_gpu.blocks.register_views import table_bytes

NUM_VALUES = 16
LOW_BYTES, HIGH_BYTES = 0x00FF00FF, 0xFF00FF00


def table_values(codes: UInt32[Array, "64 words"], values: Sequence[float], dtype: Any) -> UInt32[Array, "64 words"]:
    """The bits of values[code] in each half of a word, rounded to a type of 16 bits. codes: in the lowest four bits of
    the halves, whose other bits are 0."""
    low_table, high_table = np.asarray(values, dtype).view(np.uint8).reshape(NUM_VALUES, 2).T.tolist()
    index = codes & jnp.uint32(0x00070007)
    for_low = index | (index >> jnp.uint32(8))  # only the lowest four digits are read
    for_high = for_low << jnp.uint32(4)

    def of_eight(first: int) -> UInt32[Array, "64 words"]:
        low = table_bytes(low_table[first : first + 8], for_low)
        high = table_bytes(high_table[first : first + 8], for_high)
        return (low & jnp.uint32(LOW_BYTES)) | (high & jnp.uint32(HIGH_BYTES))

    is_upper = (codes >> jnp.uint32(3)) & jnp.uint32(0x00010001)
    mask = (is_upper << jnp.uint32(16)) - is_upper  # all bits of a half
    lower, upper = of_eight(0), of_eight(8)
    return lower ^ ((lower ^ upper) & mask)
