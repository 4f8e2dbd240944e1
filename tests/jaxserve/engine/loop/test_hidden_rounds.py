"""Rounds in steps with late rows on a simulated device: those that fit in its waits for the host."""

import pytest

from jaxserve.core.buckets import Bucket
from jaxserve.engine.loop.hidden_rounds import HiddenRounds

DECODE, OTHER, MIXED = Bucket(8, 8, 8), Bucket(16, 16, 8), Bucket(64, 8, 8)


class Device:
    """Late rows draw once the device has done the rounds and the host has their masks."""

    def __init__(self, max_rounds: int = 16):
        self.rounds = HiddenRounds(max_rounds)

    def step(self, host_ms: float, round_ms: float, bucket: Bucket = DECODE) -> tuple[int, float]:
        """The rounds of a step, and its milliseconds."""
        num_rounds = self.rounds.num_rounds
        self.rounds.plan(bucket)
        device_ms = num_rounds * round_ms
        self.rounds.observe(bucket, num_rounds, is_hidden=device_ms < host_ms)
        return num_rounds, max(host_ms, device_ms)


@pytest.mark.parametrize(
    ("host_ms", "round_ms"),
    [(1, 10), (5, 5.5), (10, 9.9), (10, 6), (10, 4), (12.5, 1.4), (26, 3), (40, 1), (0.21, 0.1)],
)
def test_late_rows_are_not_delayed_and_the_time_is_used(host_ms, round_ms):
    device = Device()
    for _ in range(600):  # it has found its number
        device.step(host_ms, round_ms)
    steps = [device.step(host_ms, round_ms) for _ in range(640)]
    assert sum(ms for _, ms in steps) / len(steps) < 1.035 * max(host_ms, round_ms)
    fitting = max(1, min(16, int(host_ms / round_ms)))
    assert 0.85 * fitting <= sum(n for n, _ in steps) / len(steps) < 1.1 * fitting


def test_it_follows_rounds_that_grow():
    device = Device()
    for _ in range(100):
        device.step(20, 2)
    assert device.rounds.num_rounds > 7
    assert [device.step(20, 12)[0] for _ in range(12)][-3:] == [1, 1, 1]
    for _ in range(100_000):
        device.rounds.observe(DECODE, 1, is_hidden=False)
    assert device.rounds._by_bucket[DECODE].count == 1


def test_each_bucket_has_its_number_and_begins_with_one_round():
    device = Device()
    for _ in range(100):
        device.step(20, 2)
    found = device.rounds.num_rounds
    device.rounds.plan(OTHER)
    device.rounds.observe(OTHER, found, is_hidden=False)  # it was planned with the number of the bucket before
    assert device.rounds.num_rounds == 1
    device.rounds.plan(MIXED)
    assert device.rounds.num_rounds == 1
    device.rounds.plan(DECODE)
    assert device.rounds.num_rounds == found > 7


def test_one_round_where_a_program_has_one():
    device = Device(max_rounds=1)
    assert {device.step(20, 1)[0] for _ in range(50)} == {1}


def test_steps_of_fewer_rounds_do_not_ask_for_more():
    """Rows may need fewer, or have pages for fewer."""
    rounds = HiddenRounds(16)
    rounds.plan(DECODE)
    for _ in range(50):
        rounds.observe(DECODE, 1, is_hidden=True)
    assert rounds.num_rounds == 2
