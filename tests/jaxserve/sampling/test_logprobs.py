import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.sampling.logit_processors import mask_padding
from jaxserve.sampling.logprobs import top_logprobs

run = jax.jit(top_logprobs, static_argnums=3)


@pytest.mark.parametrize(
    ("vocab_size", "width", "k"), [(10, 16, 10), (300, 300, 20), (9000, 9088, 20), (200, 256, 200)]
)
def test_they_equal_the_oracle_over_the_true_vocabulary(vocab_size, width, k):
    rng = np.random.default_rng(0)
    raw = (rng.normal(size=(6, width)) * 4).astype(np.float32)
    raw[:, vocab_size:] = 40
    chosen = rng.integers(0, vocab_size, 6)
    chosen[0] = raw[0, :vocab_size].argmax()
    logits = mask_padding(jnp.asarray(raw), vocab_size)
    logprobs, ranks, top_ids, top = run(logits, jnp.asarray(chosen, jnp.int32), jnp.full(6, k, jnp.int32), k)

    z = raw[:, :vocab_size].astype(np.float64)
    expected = z - z.max(1, keepdims=True)
    expected -= np.log(np.exp(expected).sum(1, keepdims=True))
    rows = np.arange(6)
    np.testing.assert_allclose(logprobs, expected[rows, chosen], atol=2e-5)
    np.testing.assert_array_equal(ranks, 1 + (z > z[rows, chosen][:, None]).sum(1))
    np.testing.assert_array_equal(top_ids, np.argsort(-z, axis=1, kind="stable")[:, :k])
    np.testing.assert_allclose(top, -np.sort(-expected, axis=1)[:, :k], atol=2e-5)
    assert ranks[0] == 1


def test_equal_logits_share_a_rank():
    logits = jnp.float32([[1, 3, 3, 2]])
    ranks = [int(run(logits, jnp.int32([token]), jnp.zeros(1, jnp.int32), 2)[1][0]) for token in range(4)]
    assert ranks == [4, 1, 1, 3]


def test_results_are_zeros_unless_a_row_requests_them():
    logits, chosen = jnp.ones((3, 50)), jnp.zeros(3, jnp.int32)
    assert all((x == 0).all() for x in run(logits, chosen, jnp.full(3, -1, jnp.int32), 5))
    logprobs, ranks, _, top = run(logits, chosen, jnp.int32([-1, 2, -1]), 5)
    assert (logprobs < 0).all()
    assert (ranks == 1).all()
    assert (top < 0).all()


def test_candidates_are_zeros_unless_a_row_requests_them():
    logits, chosen = jnp.ones((3, 50)), jnp.zeros(3, jnp.int32)
    logprobs, ranks, top_ids, top = run(logits, chosen, jnp.int32([-1, 0, -1]), 5)
    assert (logprobs < 0).all()
    assert (ranks == 1).all()
    assert not top_ids.any()
    assert not top.any()
