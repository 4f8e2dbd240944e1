"""Shares of time add up to 1, and drafting is what the profiler sees in the scopes of proposers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxserve.bench.spec.time_split import drafting_of, split_time
from jaxserve.core.buckets import Bucket
from jaxserve.core.step_outcome import DraftCounts
from jaxserve.engine.loop.step_stats import StepLog, StepMoments, StepRecord

BUCKETS = {"verify": Bucket(16, 4, 4, max_drafts=3), "decode": Bucket(4, 4, 4), "mixed": Bucket(32, 4, 4)}
COUNTS = DraftCounts(np.int32([[3]]), np.int32([[1]]))
STEPS = st.lists(st.tuples(st.sampled_from(sorted(BUCKETS)), st.integers(0, 9), st.integers(1, 9)), max_size=20)


def logged(steps) -> tuple[StepLog, float]:
    """Steps one after the other, each a kind of bucket, a pause and a duration; the time of all and a last pause."""
    log, now = StepLog(), 0.0
    for kind, pause_s, device_s in steps:
        submitted_s, now = now + pause_s, now + pause_s + device_s
        moments = StepMoments(submitted_s, submitted_s, submitted_s, submitted_s, submitted_s, now, now)
        log(StepRecord(BUCKETS[kind], 1, 4, 1, moments, drafts=COUNTS if kind == "verify" else None))
    return log, now + 1


@given(STEPS, st.floats(0, 1))
def test_shares_are_those_of_the_durations_and_add_up_to_one(steps, drafting):
    log, wall_s = logged(steps)
    split = split_time(log, wall_s, drafting)
    assert split is not None
    shares = split.drafting, split.verifying, split.other, split.host
    verify_s = sum(device_s for kind, _, device_s in steps if kind == "verify")
    other_s = sum(device_s for kind, _, device_s in steps if kind != "verify")
    pauses_s = 1 + sum(pause_s for _, pause_s, _ in steps)
    expected = [verify_s * drafting, verify_s * (1 - drafting), other_s, pauses_s]
    assert shares == pytest.approx(np.array(expected) / wall_s)
    assert sum(shares) == pytest.approx(1)


@given(STEPS)
def test_what_was_not_traced_is_unknown_unless_no_step_has_drafts(steps):
    split = split_time(*logged(steps), None)
    assert (split is None) == any(kind == "verify" for kind, _, _ in steps)
    assert split is None or split.drafting == split.verifying == 0


def program(name: str, num_runs: int, unnamed_ms: float = 0.0, **scopes_ms: float):
    scopes = {scope.replace("_in_", "/"): ms for scope, ms in scopes_ms.items()}
    return {"name": name, "num_runs": num_runs, "scopes_ms": scopes, "unnamed_ms": unnamed_ms, "between_ms": 50.0}


def test_drafting_is_what_happens_inside_the_scopes_of_proposers():
    programs = [
        program("verify 1", 2, draft_in_layers_in_mlp=3.0, propose=1.0, layers_in_mlp=4.0, accept=1.0, unnamed_ms=1.0),
        program("verify 2", 1, draft=5.0, draft_in_fuse=5.0, attention=70.0),
        program("decode", 9, draft=100.0),
    ]
    assert drafting_of(programs, {"verify 1", "verify 2"}) == pytest.approx((2 * 4 + 10) / (2 * 10 + 80))
    assert drafting_of(programs[:1], {"verify 1", "verify 2"}) == pytest.approx(0.4)
    assert drafting_of(programs[2:], {"verify 1", "verify 2"}) is None
