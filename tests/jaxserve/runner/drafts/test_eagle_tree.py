"""The drafts that are chosen of an EAGLE tree are the likeliest, and form one tree whatever their scores."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.runner.drafts.eagle_tree import OF_A_DEPTH, Candidates, likeliest_tree

K, NUM_ROUNDS = 3, 4


def random_candidates(random, *, has_ties):
    """Scores fall along each path; with ties as little as they do for tokens that are certain."""
    scores, parents = list[float](), list[int]()
    frontier: list[tuple[float, int]] = [(0.0, -1)]
    for _ in range(NUM_ROUNDS):
        grown = list[tuple[float, int]]()
        for score, number in frontier:
            for _ in range(K):
                loss = random.choice([0.0, 0.0, 1.0]) if has_ties else random.exponential()
                grown.append((score - loss - OF_A_DEPTH, len(scores)))
                scores.append(grown[-1][0])
                parents.append(number)
        frontier = sorted(grown, reverse=True)[:K]
    return np.array(scores, np.float32), np.array(parents, np.int32)


@pytest.mark.parametrize("has_ties", [False, True])
def test_the_likeliest_candidates_are_one_tree(has_ties):
    random = np.random.default_rng(0)
    for num_drafts in (3, 8, 12):
        rows = [random_candidates(random, has_ties=has_ties) for _ in range(20)]
        scores, parents = (np.stack(columns) for columns in zip(*rows, strict=True))
        tokens = np.tile(np.arange(scores.shape[1], dtype=np.int32), (len(rows), 1))
        room = random.integers(0, num_drafts + 1, len(rows)).astype(np.int32)
        found = likeliest_tree(Candidates(*map(jnp.asarray, (tokens, scores, parents))), jnp.asarray(room), num_drafts)
        assert found.num.tolist() == room.tolist()
        for row, count in enumerate(room):
            chosen, followed = np.asarray(found.tokens[row, :count]), np.asarray(found.parents[row, :count])
            assert (np.diff(chosen) > 0).all(), "in the order of the rounds"
            np.testing.assert_array_equal(
                np.sort(scores[row, chosen]), np.sort(scores[row])[len(scores[row]) - count :]
            )
            before = np.concatenate([[-1], chosen])
            np.testing.assert_array_equal(before[followed], parents[row, chosen])


def test_candidates_that_were_not_scored_are_not_drafted():
    scores = jnp.float32([[-1.0, -jnp.inf, -2.0, -jnp.inf]])
    candidates = Candidates(jnp.int32([[5, 6, 7, 8]]), scores, jnp.int32([[-1, -1, 0, 0]]))
    found = likeliest_tree(candidates, jnp.int32([3]), 3)
    assert found.num.tolist() == [2]
    assert found.tokens[0, :2].tolist() == [5, 7]
    assert found.parents[0, :2].tolist() == [0, 1]
