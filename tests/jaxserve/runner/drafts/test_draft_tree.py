"""Ancestors of the nodes of random trees, and their bits, equal those found by following the parents."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.runner.drafts.draft_tree import Drafts, ancestors, tree_bits, with_chains

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


@pytest.mark.parametrize("num_drafts", [1, 2, 7, 33])
def test_a_chain_follows_first_children(num_drafts):
    """Of every second row; the others keep their tree."""
    parents = np.array([[RANDOM.integers(0, node) for node in range(1, 1 + num_drafts)] for _ in range(12)])
    num, tokens = RANDOM.integers(0, num_drafts + 1, 12), RANDOM.integers(0, 99, (12, num_drafts))
    drafts = Drafts(*map(jnp.int32, (tokens, num, parents)))
    is_chain = np.arange(12) % 2 == 0
    found = with_chains(drafts, jnp.asarray(is_chain))
    for row in range(12):
        if not is_chain[row]:
            assert all(
                (np.asarray(new)[row] == np.asarray(old)[row]).all()
                for new, old in zip(found[:3], drafts[:3], strict=True)
            )
            continue
        path, node = [], 0
        while children := [i for i in range(num[row]) if parents[row, i] == node]:
            path.append(tokens[row, children[0]])
            node = 1 + children[0]
        assert found.tokens[row, : found.num[row]].tolist() == path
        assert found.parents[row].tolist() == list(range(num_drafts))


def test_chains_are_chains_already():
    drafts = Drafts(jnp.int32([[4, 5]]), jnp.int32([2]))
    assert with_chains(drafts, jnp.array([True])) is drafts
