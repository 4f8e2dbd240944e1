"""Ancestors of the nodes of random trees, and their bits, equal those found by following the parents."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.runner.drafts.draft_tree import Drafts, ancestors, tree_bits

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("num_drafts", [1, 2, 7, 31, 32, 63])
def test_ancestors_are_found_by_following_the_parents(num_drafts):
    parents = np.array([[RANDOM.integers(0, node) for node in range(1, 1 + num_drafts)] for _ in range(5)])
    parents[0] = np.arange(num_drafts)
    found = np.asarray(ancestors(Drafts(jnp.int32(parents), jnp.zeros(5, jnp.int32), jnp.int32(parents))))
    words = np.asarray(tree_bits(jnp.asarray(found))).view(np.uint32)
    for row, of_row in enumerate(parents.tolist()):
        for node in range(1 + num_drafts):
            path = {node}
            while min(path):
                path.add(of_row[min(path) - 1])
            assert set(np.flatnonzero(found[row, node])) == path
            bits = sum(int(word) << 32 * i for i, word in enumerate(words[row, node]))
            assert bits == sum(1 << ancestor for ancestor in path)
    chain = ancestors(Drafts(jnp.int32(parents), jnp.zeros(5, jnp.int32)))
    np.testing.assert_array_equal(chain[0], found[0])
