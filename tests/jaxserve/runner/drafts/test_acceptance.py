"""Sample and match: rows advance by the drafts that are what is drawn, and by the token after them."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxserve.runner.drafts.acceptance import sample_and_match

ROWS, DRAFTS = 300, 4
RANDOM = np.random.default_rng(0)


def advance(drawn, is_bad, is_stop, drafts):
    """One row, token by token."""
    for j in range(len(drafts) + 1):
        goes_on = j < len(drafts) and drawn[j] == drafts[j] and not is_bad[j] and not is_stop[j]
        if not goes_on:
            return j + 1, drawn[j], is_bad[j], is_stop[j]
    raise AssertionError


def test_rows_advance_as_token_by_token():
    drawn = RANDOM.integers(0, 2, (ROWS, DRAFTS + 1))
    drafts, counts = RANDOM.integers(0, 2, (ROWS, DRAFTS)), RANDOM.integers(0, DRAFTS + 1, ROWS)
    is_bad, is_stop = RANDOM.random((2, ROWS, DRAFTS + 1)) < 0.1
    ints = [jnp.asarray(a, jnp.int32) for a in (drawn, drafts, counts)]
    found = jax.jit(sample_and_match)(ints[0], jnp.asarray(is_bad), jnp.asarray(is_stop), *ints[1:])
    rows = zip(drawn.tolist(), is_bad.tolist(), is_stop.tolist(), drafts.tolist(), counts.tolist(), strict=True)
    expected = [advance(*row, row_drafts[:count]) for *row, row_drafts, count in rows]
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected
    assert {count for count, *_ in expected} == set(range(1, DRAFTS + 2))
    assert [1 + count for count in counts] != [count for count, *_ in expected], "control: drafts that are not compared"
