"""Drafts of the device equal those of a plain scan, on random texts of few letters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.runner.drafts.ngram_proposer import NgramProposer

WIDTH, DRAFTS = 40, 5
RANDOM = np.random.default_rng(0)
GARBAGE = 99


def scan(text: list[int], proposer: NgramProposer) -> tuple[list[int], list[int]]:
    """Drafts and what they follow: what came after the longest recurring ends of a text, the most recent one among
    equals, each with a first token of its own, repeated to its branch's end."""
    lengths = [len(part) for part in np.array_split(range(DRAFTS), proposer.num_branches)]
    drafts, parents, firsts = list[int](), list[int](), set[int]()
    for size in range(proposer.max_len, proposer.min_len - 1, -1):
        for end in range(len(text) - 1, size - 1, -1):
            if text[end - size : end] == text[len(text) - size :] and text[end] not in firsts and lengths:
                firsts.add(text[end])
                following, length = text[end:], lengths.pop(0)
                parents += [0, *range(len(drafts) + 1, len(drafts) + length)]
                drafts += [following[i % len(following)] for i in range(length)]
    return drafts, parents


@pytest.mark.parametrize("lookup", [(1, 1), (1, 3), (2, 4), (3, 3), (1, 3, 2), (2, 4, 3)])
@pytest.mark.parametrize("num_letters", [2, 4])
def test_drafts_are_those_of_a_scan(lookup, num_letters):
    """Rows' histories hold garbage past their lengths, as after rejected drafts."""
    lens = RANDOM.integers(1, WIDTH + 1, 200)
    history = RANDOM.integers(0, num_letters, (len(lens), WIDTH))
    history[np.arange(WIDTH) >= lens[:, None]] = GARBAGE
    proposer = NgramProposer(*lookup)
    propose = jax.jit(proposer.look_up, static_argnums=2)
    found = propose(jnp.asarray(history, jnp.int32), jnp.asarray(lens, jnp.int32), DRAFTS)
    assert (found.parents is not None) == proposer.makes_trees
    counts, columns = np.asarray(found.num), (found.tokens.tolist(), found.followed.tolist())
    for row, (text, length) in enumerate(zip(history.tolist(), lens.tolist(), strict=True)):
        drafts, parents = scan(text[:length], proposer)
        assert counts[row] == len(drafts)
        assert [column[row][: counts[row]] for column in columns] == [drafts, parents]
    assert 0 in counts
    assert max(counts) > DRAFTS // 2
    assert (len(set(counts.tolist())) > 2) == proposer.makes_trees


def test_fewer_drafts_than_branches():
    """Narrow buckets may have fewer: the first branches then have one draft each."""
    history = jnp.int32([[5, 1, 5, 2, 5, 3, 5]])
    found = NgramProposer(1, 1, 3).look_up(history, jnp.int32([7]), 2)
    assert (found.tokens.tolist(), found.followed.tolist(), found.num.tolist()) == ([[3, 2]], [[0, 0]], [2])
