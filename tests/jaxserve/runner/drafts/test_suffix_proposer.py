"""Suffix drafts equal those of a plain search, on random texts of few letters."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.runner.drafts.suffix_proposer import LENGTHS, NUM_PLACES, SuffixProposer

WIDTH = 40
GARBAGE = 99


def places_of(text: list[int], earlier: list[tuple[int, int]], owner: int, most: int) -> list[tuple[int, list[int]]]:
    """At each place how many of the last tokens recur, and what followed; the most first, of equals the latest."""
    found = list[tuple[int, list[int]]]()
    tail = text[::-1][: LENGTHS[0]]
    for end, (_, whose) in enumerate(earlier):
        before = [earlier[(end - i) % len(earlier)][0] for i in range(len(tail))]
        after = [earlier[(end + 1 + i) % len(earlier)][0] for i in range(most)]
        if whose == owner:
            found.append((common(before, tail), after[: after.index(-1)] if -1 in after else after))
    for end in range(len(text) - 1):
        following = text[end + 1 :]
        found.append((common(text[end::-1], tail), [following[i % len(following)] for i in range(most)]))
    order = sorted(range(len(found)), key=lambda i: (-found[i][0], -i))
    return [found[i] for i in order[:NUM_PLACES] if found[i][0]]


def common(a: list[int], b: list[int]) -> int:
    """Tokens that two lists have in common at their start."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def best_trees(places: list[tuple[int, list[int]]], most: int, factor: float, least: float) -> list[list[tuple]]:
    """The paths of the trees with the largest sum of shares, in order."""
    trees = [(0.0, list[tuple]())]
    for length in LENGTHS:
        texts = [text[: min(most, int(length * factor))] for run, text in places if run >= length]
        paths = [tuple(text[: i + 1]) for text in texts for i in range(len(text))]
        number = Counter(paths)
        kept = [path for path in number if number[path] / len(texts) >= least]
        first = {path: next(i for i, text in enumerate(texts) if path == tuple(text[: len(path)])) for path in kept}
        kept = sorted(kept, key=lambda path: (-number[path], len(path), first[path]))[:most]
        trees.append((sum(number[path] / len(texts) for path in kept), kept))
    highest = max(total for total, _ in trees)
    return [kept for total, kept in trees if total > highest - 1e-5]


@pytest.mark.thinned(4)
@pytest.mark.parametrize(("most", "factor", "least"), [(1, 1.0, 0.1), (5, 1.0, 0.1), (8, 3.0, 0.0), (8, 0.5, 0.4)])
@pytest.mark.parametrize("num_earlier", [0, 7, 30])
def test_drafts_are_those_of_a_search(most, factor, least, num_earlier):
    random = np.random.default_rng(num_earlier + most)
    lens, owners = random.integers(1, WIDTH + 1, 60), random.integers(1, 4, 60)
    lens[0], owners[0] = 1, 9  # nothing recurs, and nothing is known
    history = random.integers(0, 3, (len(lens), WIDTH))
    history[np.arange(WIDTH) >= lens[:, None]] = GARBAGE
    earlier = np.stack([random.integers(-1, 3, num_earlier), random.integers(1, 3, num_earlier)])
    look_up = jax.jit(SuffixProposer(factor, least).look_up, static_argnums=4)
    arrays = (jnp.asarray(a, jnp.int32) for a in (history, lens, earlier, owners))
    found = jax.tree.map(np.asarray, look_up(*arrays, most))
    for row, text in enumerate(history.tolist()):
        paths = [()]
        for token, parent in list(zip(found.tokens[row], found.parents[row], strict=True))[: found.num[row]]:
            paths.append((*paths[parent], int(token)))
        places = places_of(text[: lens[row]], list(zip(*earlier.tolist(), strict=True)), int(owners[row]), most)
        assert paths[1:] in best_trees(places, most, factor, least)
    assert found.num[0] == 0
    assert min(most, 2) <= max(found.num) <= most


def test_what_follows_earlier_outputs_is_drafted_for_their_owner_alone():
    history, lens = jnp.int32([[7, 8, 9, 0, 0]] * 2), jnp.int32([3, 3])
    earlier = jnp.int32([[8, 9, 4, 5, 6, -1, 1], [1] * 7])
    found = SuffixProposer(2.0, 0.1).look_up(history, lens, earlier, jnp.int32([1, 2]), 3)
    assert found.num.tolist() == [3, 0]
    assert found.tokens[0].tolist() == [4, 5, 6]
    assert found.parents is not None
    assert found.parents[0].tolist() == [0, 1, 2]
