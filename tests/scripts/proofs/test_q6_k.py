"""Blocks of Q6_K that a proof writes are those of the `gguf` package."""

import numpy as np
from gguf import GGMLQuantizationType, quants

from scripts.proofs.quantization.q6_k import encode


def test_decoded_blocks_are_at_most_a_step_from_the_values():
    """A step is a 32nd of the largest of 16 values. A value as large, of the other sign, has no code: the next one is
    a step away, and scales of 8 bits move it by a quarter."""
    values = np.random.default_rng(0).normal(size=(7, 512)).astype(np.float32)
    values[2] = 0
    blocks = encode(values)
    assert blocks.shape == (14, 210)
    decoded = quants.dequantize(blocks, GGMLQuantizationType.Q6_K).reshape(values.shape)
    steps = np.abs(values.reshape(7, -1, 16)).max(-1, keepdims=True) / 32
    assert (np.abs(decoded - values).reshape(7, -1, 16) <= 1.25 * steps).all()
    np.testing.assert_array_equal(decoded[2], 0)
