"""Distances are those of the formulas written out, and take no memory for all positions at once."""

import jax.numpy as jnp
import numpy as np

from jaxserve.bench.quality import distances as module
from jaxserve.bench.quality.distances import distances, of_positions

RANDOM = np.random.default_rng(0)
LEN, VOCAB = 50, 300


def log_softmax(logits):
    logits = logits.astype(np.float64)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def test_sums_are_those_of_all_predicted_positions(monkeypatch):
    monkeypatch.setattr(module, "MAX_POSITIONS", 16)
    first = RANDOM.normal(size=(LEN, VOCAB)).astype(np.float32)
    found = first + RANDOM.normal(size=(LEN, VOCAB)).astype(np.float32)
    tokens = RANDOM.integers(0, VOCAB, LEN).astype(np.int32)
    p, q = log_softmax(first)[:-1], log_softmax(found)[:-1]
    expected = [-q[np.arange(LEN - 1), tokens[1:]].sum(), (np.exp(p) * (p - q)).sum()]
    expected.append((p.argmax(axis=1) == q.argmax(axis=1)).sum())
    assert 0 < expected[2] < LEN - 1
    np.testing.assert_allclose(distances(jnp.asarray(first), jnp.asarray(found), tokens), expected, rtol=1e-5)


def test_some_positions_have_no_array_of_all():
    logits, tokens = jnp.zeros((1024, VOCAB), jnp.float32), jnp.zeros(1024, jnp.int32)
    compiled = of_positions.lower(16, logits, logits, tokens, jnp.int32(0)).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < logits.nbytes / 4
