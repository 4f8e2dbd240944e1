"""Drafts of the device equal those of a plain scan, on random texts of few letters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.runner.drafts.ngram_proposer import NgramProposer

WIDTH, DRAFTS = 40, 5
RANDOM = np.random.default_rng(0)
GARBAGE = 99


def scan(text: list[int], min_len: int, max_len: int) -> list[int]:
    """What followed the longest recurring end of a text, the most recent one among equals, repeated to its end."""
    for size in range(max_len, min_len - 1, -1):
        for end in range(len(text) - 1, size - 1, -1):
            if text[end - size : end] == text[len(text) - size :]:
                following = text[end:]
                return [following[i % len(following)] for i in range(DRAFTS)]
    return []


@pytest.mark.parametrize(("min_len", "max_len"), [(1, 1), (1, 3), (2, 4), (3, 3)])
@pytest.mark.parametrize("num_letters", [2, 4])
def test_drafts_are_those_of_a_scan(min_len, max_len, num_letters):
    """Rows' histories hold garbage past their lengths, as after rejected drafts."""
    lens = RANDOM.integers(1, WIDTH + 1, 200)
    history = RANDOM.integers(0, num_letters, (len(lens), WIDTH))
    history[np.arange(WIDTH) >= lens[:, None]] = GARBAGE
    propose = jax.jit(NgramProposer(min_len, max_len).propose, static_argnums=2)
    drafts, counts = propose(jnp.asarray(history, jnp.int32), jnp.asarray(lens, jnp.int32), DRAFTS)
    expected = [
        scan(row[:length].tolist(), min_len, max_len) for row, length in zip(history, lens.tolist(), strict=True)
    ]
    assert [len(tokens) for tokens in expected] == counts.tolist()
    assert [row[:count] for row, count in zip(drafts.tolist(), counts.tolist(), strict=True)] == expected
    assert 0 < np.count_nonzero(counts) < len(lens)
