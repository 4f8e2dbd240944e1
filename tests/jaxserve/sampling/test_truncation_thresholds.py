import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jaxserve.sampling.argmax_top_k import top_k
from jaxserve.sampling.top_k_min_p_threshold import kth_largest, vocabulary_threshold
from jaxserve.sampling.top_k_top_p_candidates import candidate_threshold
from tests.jaxserve.sampling.rows import kept, make_batch

ROWS = 4


@jax.jit
def by_bisection(z, b):
    return jax.lax.map(lambda row: vocabulary_threshold(*row, jnp.bool_(True)), (z, b.temperature, b.top_k, b.min_p))


all_together = jax.jit(
    lambda z, b: jax.vmap(vocabulary_threshold)(z, b.temperature, b.top_k, b.min_p, jnp.ones(ROWS, bool))
)
by_candidates = jax.jit(lambda z, b: candidate_threshold(z, top_k(z, min(65, z.shape[1]))[0], b, b.temperature))

truncations = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.01, 0.3, 1.0, 2.0, 1e4]),
        "top_k": st.sampled_from([0, 1, 2, 5, 40, 64, 65, 66, 100, 499, 500, 10**6]),
        "top_p": st.one_of(st.just(1.0), st.sampled_from([1e-6, 0.1, 0.5, 0.9, 0.99, 0.9999]), st.floats(0.01, 0.999)),
        "min_p": st.sampled_from([0.0, 0.0, 1e-3, 0.05, 0.5, 1.0]),
    }
)


def is_near_a_boundary(z, temperature, top_k, top_p, min_p):
    """Whether some value is so close to a threshold that float32 rounding may differ from the oracle."""
    moved = [
        kept(
            z,
            temperature,
            top_k=top_k,
            top_p=min(1, top_p * (1 + a)) if top_p < 1 else 1,
            min_p=min(1, min_p * (1 + b)),
        )
        for a in (-1e-5, 0, 1e-5)
        for b in (-1e-4, 0, 1e-4)
    ]
    return any((other != moved[0]).any() for other in moved)


@given(st.sampled_from([7, 65, 500]), st.sampled_from([0.0, 0.25, 2.0]), truncations, st.integers(0, 2**32 - 1))
@example(500, 0.25, {"temperature": 1.0, "top_k": 64, "top_p": 1.0, "min_p": 0.0}, 0)
@example(500, 2.0, {"temperature": 1.0, "top_k": 3, "top_p": 0.3, "min_p": 0.0}, 0)
def test_the_kept_tokens_are_the_oracle_s_with_all_equal_values(width, step, truncation, seed):
    rng = np.random.default_rng(seed)
    z = (rng.normal(size=(ROWS, width)) * rng.choice([0.5, 3.0])).astype(np.float32)
    z = np.round(z / step).astype(np.float32) * np.float32(step) if step else z
    z[0, rng.random(width) < 0.7] = -np.inf
    z[0, rng.integers(width)] = 1
    truncation = {**truncation, "top_p": float(np.float32(truncation["top_p"]))}
    batch = make_batch([truncation] * ROWS)
    exact, together = by_bisection(z, batch), all_together(z, batch)
    candidates, is_known, is_complete = by_candidates(z, batch)
    for i, row in enumerate(z):
        if is_near_a_boundary(row, **truncation):
            continue
        expected, without_top_p = kept(row, **truncation), kept(row, **truncation | {"top_p": 1.0})
        for threshold in (exact[i], together[i], *([candidates[i]] if is_known[i] and not is_complete[i] else [])):
            np.testing.assert_array_equal((row >= threshold) & (row > -np.inf), without_top_p)
        if is_complete[i]:
            np.testing.assert_array_equal((row >= candidates[i]) & (row > -np.inf), expected)
        # 65 candidates determine every threshold except those of a larger top_k and of a larger nucleus.
        assert is_known[i] or 65 < truncation["top_k"] < width
        assert is_complete[i] or not is_known[i] or (truncation["top_p"] < 1 and expected.sum() > 64)


@pytest.mark.parametrize("order", ["top-p before top-k", "top-p before min-p"])
def test_the_order_of_truncations_shows_in_what_is_kept(order):
    z = np.log(np.float64([0.3, 0.2, 0.15, 0.1, 0.1, 0.08, 0.07])).astype(np.float32)
    truncation = {"top_k": 3, "top_p": 0.7} if "top-k" in order else {"min_p": 0.4, "top_p": 0.7}
    wrong = kept(z, top_p=truncation["top_p"])
    wrong &= kept(z, **{name: value for name, value in truncation.items() if name != "top_p"})
    right = kept(z, **truncation)
    batch = make_batch([truncation] * ROWS)
    np.testing.assert_array_equal(z >= by_candidates(np.stack([z] * ROWS), batch)[0][0], right)
    assert (right != wrong).any()


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=9, max_size=9), st.integers(1, 9))
def test_the_k_largest_are_found_among_all_floats(values, k):
    z = np.float32(values)
    z[np.abs(z) < np.finfo(np.float32).tiny] = 0  # the device flushes subnormal numbers
    np.testing.assert_array_equal(z >= jax.jit(kth_largest)(z, jnp.int32(k), jnp.bool_(True)), z >= np.sort(z)[-k])
    assert jax.jit(kth_largest)(z, jnp.int32(k), jnp.bool_(False)) == -np.inf


@pytest.mark.parametrize("k", [1, 66, 4096, 8193, 19_999])
@pytest.mark.parametrize("step", [0.0, 0.5])
def test_the_k_largest_of_a_row_wider_than_one_count(k, step):
    z = np.random.default_rng(k).normal(size=20_000).astype(np.float32)
    z = np.round(z / step).astype(np.float32) * np.float32(step) if step else z
    np.testing.assert_array_equal(z >= jax.jit(kth_largest)(z, jnp.int32(k), jnp.bool_(True)), z >= np.sort(z)[-k])
