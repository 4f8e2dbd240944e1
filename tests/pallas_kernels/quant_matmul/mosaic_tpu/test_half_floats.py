"""Every float16 number is the same number as float32."""

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.quant_matmul.mosaic_tpu.half_floats import from_bits


def test_all_bits_are_read():
    bits = np.arange(2**16, dtype=np.uint16)
    found = np.asarray(jax.jit(from_bits)(jnp.asarray(bits)))
    np.testing.assert_array_equal(found, bits.view(np.float16).astype(np.float32))


def test_no_operation_has_a_subnormal_operand_or_result():
    """A TPU takes them for zero: numbers are put together by integer operations, and subtracted in the normal range."""
    text = str(jax.make_jaxpr(from_bits)(jnp.zeros(1, jnp.uint16)))
    assert "mul" not in text
    assert text.count("sub") == 1
