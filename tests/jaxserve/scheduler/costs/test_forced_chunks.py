"""Forced tokens are chunks where steps with them pay, by their measured times, and are tried where they may."""

from types import SimpleNamespace

import numpy as np
import pytest

from jaxserve.core.buckets import Bucket
from jaxserve.scheduler.costs.forced_chunks import TRIAL_SHARE, ForcedChunks

DECODE, MIXED = Bucket(8, 8, 4), Bucket(32, 8, 4)


def chunk_steps(slowdown: float, num_steps: int, *, num_saved: int, has_others: bool = False) -> list[bool]:
    """Whether each of so many steps has chunks, on a machine where these take so much longer."""
    chunks, found = ForcedChunks(), []
    for step_id in range(num_steps):
        sizes = {"num_rows": 8, "num_saved": num_saved, "has_others": has_others}
        found.append(chunks.choose(step_id, DECODE, MIXED, **sizes))
        bucket = MIXED if found[-1] else DECODE
        plan = SimpleNamespace(step_id=step_id, bucket=bucket, late_rows=np.arange(8))
        chunks.observe(plan, 1, slowdown if found[-1] else 1.0)
    return found


@pytest.mark.parametrize(
    ("slowdown", "num_saved", "has_others", "is_chunk"),
    [
        (1.4, 4, False, True),  # 12 tokens in the time of 11.2
        (1.6, 4, False, False),
        (1.4, 4, True, False),  # others would wait too long
        (1.05, 4, True, True),
        (1.05, 0.2, True, False),  # others need not wait for a saving of less than their delay
    ],
)
def test_chunks_are_used_where_they_gain(slowdown, num_saved, has_others, is_chunk):
    found = chunk_steps(slowdown, 200, num_saved=num_saved, has_others=has_others)
    assert not any(found[:3])  # decode steps are measured first: one that may have compiled, and two
    assert found[3:5] == [True, True]  # likewise
    share = np.mean(found[5:])
    assert share == 1 if is_chunk else share < 0.3


@pytest.mark.parametrize("slowdown", [1.6, 3.0, 10.0])
def test_trials_take_a_small_share_of_the_time(slowdown):
    found = chunk_steps(slowdown, 10_000, num_saved=4)
    assert sum(found[5:]) > 1
    assert sum(found[5:]) * (slowdown - 1) < 1.1 * TRIAL_SHARE * len(found)


def test_a_machine_that_becomes_faster_is_found():
    chunks, found = ForcedChunks(), []
    for step_id in range(2000):
        found.append(chunks.choose(step_id, DECODE, MIXED, num_rows=8, num_saved=4, has_others=False))
        plan = SimpleNamespace(step_id=step_id, bucket=MIXED if found[-1] else DECODE, late_rows=np.arange(8))
        chunks.observe(plan, 1, (3.0 if step_id < 1000 else 1.1) if found[-1] else 1.0)
    assert not np.mean(found[:1000]) > 0.05
    assert all(found[-100:])


def test_a_step_whose_chunks_found_no_pages_is_a_decode_step():
    """It took as long as any, which says nothing of the mixed bucket."""
    chunks = ForcedChunks()
    found = []
    for step_id in range(40):
        found.append(chunks.choose(step_id, DECODE, MIXED, num_rows=8, num_saved=4, has_others=False))
        is_lacking = step_id < 10
        plan = SimpleNamespace(
            step_id=step_id, bucket=DECODE if is_lacking or not found[-1] else MIXED, late_rows=np.arange(8)
        )
        chunks.observe(plan, 1, 3.0 if plan.bucket == MIXED else 1.0)
    assert found[12:] == [False] * 28


def test_steps_with_other_chunks_say_nothing():
    """Neither do decode steps without a grammar, which draw at once."""
    chunks = ForcedChunks()
    for step_id in range(10):
        plan = SimpleNamespace(step_id=step_id, bucket=MIXED, late_rows=np.arange(8))
        chunks.observe(plan, 1, 1.0)
        plan = SimpleNamespace(step_id=step_id, bucket=DECODE, late_rows=np.arange(0))
        chunks.observe(plan, 1, 1.0)
    assert not chunks.choose(10, DECODE, MIXED, num_rows=8, num_saved=8, has_others=False)
