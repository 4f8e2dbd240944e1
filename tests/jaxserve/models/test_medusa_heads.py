"""The best tree is that of a search over all paths, and grows node by node."""

import math
from itertools import product

import numpy as np
import pytest

from jaxserve.models.config.medusa_heads import MedusaHeads


@pytest.mark.parametrize("seed", range(20))
def test_a_tree_has_the_paths_that_are_worth_most(seed):
    random = np.random.default_rng(seed)
    num_heads, num_ranks = random.integers(1, 5), random.integers(1, 4)
    shares = np.sort(random.uniform(0.01, 1, (num_heads, num_ranks)))[:, ::-1]
    heads = MedusaHeads(int(num_heads), 8, tuple(map(tuple, shares.tolist())))
    paths = [path for n in range(1, num_heads + 1) for path in product(range(num_ranks), repeat=n)]
    worth = {path: math.prod(shares[head, rank] for head, rank in enumerate(path)) for path in paths}
    tree = heads.best_tree(len(paths))
    assert sorted(tree) == sorted(paths)
    assert list(tree) == sorted(tree, key=lambda path: -worth[path])
    for i, path in enumerate(tree):
        assert path[:-1] in {(), *tree[:i]}, "a path comes after its start"
        assert heads.best_tree(i + 1) == tree[: i + 1]
