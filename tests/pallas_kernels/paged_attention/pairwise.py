"""Covering sets: few combinations of options in which every two options meet."""

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any


def pairwise(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Greedy: each case takes the combination that covers most pairs not yet covered, one axis after another."""
    names = list(axes)
    pairs = [
        (a, i, b, j) for a, b in combinations(names, 2) for i, j in product(range(len(axes[a])), range(len(axes[b])))
    ]
    uncovered = dict.fromkeys(pairs)
    cases = []
    while uncovered:
        first, i, second, j = next(iter(uncovered))
        chosen = {first: i, second: j}
        for name in names:
            if name not in chosen:
                gains = [
                    sum(_pair(names, name, value, other, chosen[other]) in uncovered for other in chosen)
                    for value in range(len(axes[name]))
                ]
                chosen[name] = gains.index(max(gains))
        for a, b in combinations(names, 2):
            uncovered.pop((a, chosen[a], b, chosen[b]), None)
        cases.append({name: axes[name][chosen[name]] for name in names})
    return cases


def _pair(names: list[str], a: str, i: int, b: str, j: int) -> tuple[str, int, str, int]:
    return (a, i, b, j) if names.index(a) < names.index(b) else (b, j, a, i)
