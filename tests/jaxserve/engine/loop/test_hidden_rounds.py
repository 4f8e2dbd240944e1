"""Rounds beside late rows on a simulated device: those that fit in the time in which it would wait for the host."""

import pytest

from jaxserve.engine.loop.hidden_rounds import HiddenRounds


class Device:
    """Late rows draw once the device has done the rounds and the host has their masks. A step is planned before it is
    known whether the one before was hidden."""

    def __init__(self, max_rounds: int = 16):
        self.rounds = HiddenRounds(max_rounds)
        self.planned = 1

    def step(self, host_ms: float, round_ms: float) -> tuple[int, float]:
        """The rounds of a step, and its milliseconds."""
        num_rounds, self.planned = self.planned, self.rounds.num_rounds
        device_ms = num_rounds * round_ms
        self.rounds.observe(num_rounds, is_hidden=device_ms < host_ms)
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


def test_it_follows_a_batch_that_grows():
    device = Device()
    for _ in range(100):
        device.step(20, 2)
    assert device.rounds.num_rounds > 7
    grown = [device.step(20, 12)[0] for _ in range(12)]
    assert grown[-3:] == [1, 1, 1]


def test_one_round_where_a_program_has_one():
    device = Device(max_rounds=1)
    assert {device.step(20, 1)[0] for _ in range(50)} == {1}


def test_steps_of_fewer_rounds_do_not_ask_for_more():
    """Rows may need fewer, or have pages for fewer."""
    rounds = HiddenRounds(16)
    for _ in range(50):
        rounds.observe(1, is_hidden=True)
    assert rounds.num_rounds == 2
