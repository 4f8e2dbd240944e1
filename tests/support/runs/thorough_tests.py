"""pytest plugin: most cases of a test that is marked `thinned` are thorough, which CI leaves out."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest


def kept(cases: Sequence[Mapping[str, int]], num_kept: int) -> list[int]:
    """Indices of the first case, and of those with most values of parameters that none before them has; of equal ones
    that which is farthest from them. cases: of each parameter a number for its value."""
    chosen, seen = list[int](), set[tuple[str, int]]()
    while len(chosen) < min(num_kept, len(cases)):
        rest = [i for i in range(len(cases)) if i not in chosen]
        chosen.append(
            max(rest, key=lambda i: (len(cases[i].items() - seen), min((abs(i - j) for j in chosen), default=-i)))
        )
        seen |= cases[chosen[-1]].items()
    return chosen


@pytest.hookimpl(tryfirst=True)  # before pytest itself leaves out what `-m` says
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    groups, counts = defaultdict[str, list[pytest.Function]](list), dict[str, int]()
    for item in items:
        if isinstance(item, pytest.Function) and (mark := item.get_closest_marker("thinned")):
            name = item.nodeid.partition("[")[0]
            groups[name].append(item)
            (counts[name],) = mark.args
    for name, found in groups.items():
        # Cases with the same value have the same object.
        cases = [{parameter: id(value) for parameter, value in item.callspec.params.items()} for item in found]
        for i in set(range(len(found))) - set(kept(cases, counts[name])):
            found[i].add_marker(pytest.mark.thorough)
