"""pytest plugin: most cases of a test that is marked `thinned` are thorough, which CI leaves out."""

from collections import defaultdict

import pytest


def kept(num_cases: int, num_kept: int) -> list[int]:
    """The first case, and others at equal distances; all where there are no more."""
    return [i * num_cases // num_kept for i in range(num_kept)] if num_kept < num_cases else list(range(num_cases))


@pytest.hookimpl(tryfirst=True)  # before pytest itself leaves out what `-m` says
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cases, counts = defaultdict[str, list[pytest.Item]](list), dict[str, int]()
    for item in items:
        if mark := item.get_closest_marker("thinned"):
            function = item.nodeid.partition("[")[0]
            cases[function].append(item)
            (counts[function],) = mark.args
    for function, found in cases.items():
        for i in set(range(len(found))) - set(kept(len(found), counts[function])):
            found[i].add_marker(pytest.mark.thorough)
