"""Sample and match: rows advance by the drafts that are what is drawn, and by the token after them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.runner.drafts.acceptance import sample_and_match
from jaxserve.runner.drafts.draft_tree import Drafts

ROWS, DRAFTS = 1000, 4
RANDOM = np.random.default_rng(0)


def advance(drawn, is_bad, is_stop, drafts, parents):
    """One row, token by token; nodes: those that it passes."""
    nodes = [0]
    while not is_bad[nodes[-1]] and not is_stop[nodes[-1]]:
        children = [i + 1 for i, parent in enumerate(parents) if parent == nodes[-1]]
        accepted = [node for node in children if drafts[node - 1] == drawn[nodes[-1]]]
        if not accepted:
            break
        nodes.append(accepted[0])
    return len(nodes), drawn[nodes[-1]], is_bad[nodes[-1]], is_stop[nodes[-1]], nodes


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_rows_advance_as_token_by_token(shape):
    drawn = RANDOM.integers(0, 2, (ROWS, DRAFTS + 1))
    drafts, counts = RANDOM.integers(0, 2, (ROWS, DRAFTS)), RANDOM.integers(0, DRAFTS + 1, ROWS)
    is_bad, is_stop = RANDOM.random((2, ROWS, DRAFTS + 1)) < 0.1
    ints = [jnp.asarray(a, jnp.int32) for a in (drawn, drafts, counts)]
    parents = np.stack([RANDOM.integers(np.maximum(0, node - 3), node, ROWS) for node in range(1, DRAFTS + 1)], axis=1)
    if shape == "chain":
        parents[:] = np.arange(DRAFTS)
    arguments = ints[0], jnp.asarray(is_bad), jnp.asarray(is_stop), Drafts(*ints[1:], jnp.int32(parents))
    *found, nodes = jax.jit(sample_and_match)(*arguments)
    expected = [
        advance(*(column[row].tolist() for column in (drawn, is_bad, is_stop)), *of_drafts)
        for row, count in enumerate(counts)
        for of_drafts in [(drafts[row, :count].tolist(), parents[row, :count].tolist())]
    ]
    ends = [list(row) for row in zip(*(column.tolist() for column in found), strict=True)]
    assert ends == [end for *end, _ in expected]
    assert [row[:count] for row, (count, *_) in zip(nodes.tolist(), expected, strict=True)] == [e[-1] for e in expected]
    assert {count for count, *_ in expected} >= set(range(1, DRAFTS + 1))
    if shape == "chain":
        *same, none = jax.jit(sample_and_match)(*arguments[:3], Drafts(*ints[1:]))
        jax.tree.map(np.testing.assert_array_equal, same, found)
        assert none is None
    assert [1 + count for count in counts] != [count for count, *_ in expected], "control: drafts that are not compared"
