"""Blocks that a proof writes are those of the `gguf` package, and are mixed as llama.cpp mixes them."""

from collections import Counter

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from scripts.proofs.quantization.block_mixtures import MIXTURES, encode


@pytest.mark.parametrize(
    ("kind", "group_len", "num_bytes", "steps_of", "most"),
    [
        # A value as large as the largest, of the other sign, has no code: the next one is a step away, and scales of 8
        # bits move it by a quarter.
        ("Q6_K", 16, 210, lambda x: np.abs(x).max(-1, keepdims=True) / 32, 1.25),
        # Half a step, and what scales and minima of 6 bits, whose steps are those of 8 groups, move a value.
        ("Q4_K", 32, 144, lambda x: np.ptp(x, axis=-1, keepdims=True) / 15, 1.0),
        ("Q5_K", 32, 176, lambda x: np.ptp(x, axis=-1, keepdims=True) / 31, 1.5),
    ],
)
def test_decoded_blocks_are_at_most_a_step_from_the_values(kind, group_len, num_bytes, steps_of, most):
    values = np.random.default_rng(0).normal(size=(7, 512)).astype(np.float32)
    values[2] = 0
    blocks = encode(values, kind)
    assert blocks.shape == (14, num_bytes)
    decoded = quants.dequantize(blocks, GGMLQuantizationType[kind]).reshape(values.shape)
    errors = np.abs(decoded - values).reshape(7, -1, group_len)
    assert (errors <= most * steps_of(values.reshape(7, -1, group_len))).all()
    np.testing.assert_array_equal(decoded[2], 0)


def test_half_of_the_layers_have_more_bits():
    of = MIXTURES["q4_k_m"]
    assert Counter(of(f"blk.{i}.ffn_down.weight", 30) for i in range(30)) == {"Q6_K": 14, "Q4_K": 16}
    assert Counter(of(f"blk.{i}.attn_v.weight", 30) for i in range(30)) == {"Q8_0": 14, "Q5_0": 16}
    assert {of(f"blk.{i}.ffn_up.weight", 30) for i in range(30)} == {"Q5_0"}
    of = MIXTURES["q5_k_m"]
    assert Counter(of(f"blk.{i}.ffn_down.weight", 30) for i in range(30)) == {"Q6_K": 14, "Q5_K": 16}
    assert of("blk.3.attn_k.weight", 30) == "Q5_1"
