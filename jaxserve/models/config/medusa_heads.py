"""Host: `MedusaHeads`: the sizes of Medusa heads, what their guesses are worth, and the best tree of these."""

import heapq
import math
from dataclasses import dataclass

MAX_HEADS, MAX_RANKS = 16, 10
UNKNOWN = tuple(tuple(0.5 * 0.8**head * 0.4**rank for rank in range(MAX_RANKS)) for head in range(MAX_HEADS))
"""What heads are taken to be worth that were never measured: only the shape of the tree depends on it."""

Path = tuple[int, ...]
"""Of each head, from the first on, the rank of its guess, 0: the likeliest token."""


@dataclass(frozen=True, slots=True)
class MedusaHeads:
    """shares: of each head and rank how often this guess was the token."""

    num_heads: int
    d_model: int
    shares: tuple[tuple[float, ...], ...]

    def best_tree(self, num_nodes: int) -> tuple[Path, ...]:
        """The paths that are worth most, each the product of its shares, the best first (Cai et al., arXiv 2401.10774,
        section 2.3.3). A path comes after its start, so the first n are the best tree of n."""
        tree = list[Path]()
        waiting: list[tuple[float, Path]] = [(-self.shares[0][0], (0,))]
        while waiting and len(tree) < num_nodes:
            _, path = heapq.heappop(waiting)
            tree.append(path)
            following = [(*path[:-1], path[-1] + 1)] if path[-1] + 1 < len(self.shares[len(path) - 1]) else []
            following += [(*path, 0)] if len(path) < self.num_heads else []
            for other in following:
                worth = math.prod(self.shares[head][rank] for head, rank in enumerate(other))
                heapq.heappush(waiting, (-worth, other))
        return tuple(tree)
