"""A failed measurement restores the engine."""

import pytest

from jaxserve.bench.offline.measure import measure
from jaxserve.bench.offline.workload import FileWorkload, Workload
from tests.support.tiny_engines import tiny_engine


def test_no_observer_stays_behind_a_pass_that_fails(monkeypatch):
    llm, seen = tiny_engine("llama3"), []

    def fail(*args, **options):
        seen.append(llm.parts.engine.observer)
        raise KeyboardInterrupt

    monkeypatch.setattr(llm, "generate", fail)
    with pytest.raises(KeyboardInterrupt):
        measure(llm, FileWorkload(Workload([[5, 6]], [3])), warm_up="none", repeats=1)
    assert len(seen) == 1
    assert seen[0] is not None
    assert llm.parts.engine.observer is None
