"""Rounds beside late rows on a simulated device: those that fit in the time in which it would wait for the host."""

import pytest

from jaxserve.engine.loop.hidden_rounds import HiddenRounds

DRAW_S = 0.0003  # of late rows


class Device:
    """Late rows draw once the device has done the rounds and the host has their masks."""

    def __init__(self, max_rounds: int = 16):
        self.rounds = HiddenRounds(max_rounds)

    def step(self, host_s: float, round_s: float) -> tuple[int, float]:
        """The rounds of a step, and its seconds."""
        num_rounds = self.rounds.num_rounds
        device_s = num_rounds * round_s + DRAW_S
        step_s = max(host_s + DRAW_S / 2, device_s)  # a part of the draw is hidden
        self.rounds.observe(num_rounds, step_s, step_s - host_s)
        return num_rounds, step_s


@pytest.mark.parametrize(
    ("host_ms", "round_ms"), [(1, 10), (5, 5.5), (10, 6), (10, 4), (12.5, 1.4), (26, 3), (40, 1), (0.2, 0.1)]
)
def test_late_rows_are_not_delayed_and_the_time_is_used(host_ms, round_ms):
    device = Device()
    for _ in range(600):  # it has found its number
        device.step(host_ms / 1e3, round_ms / 1e3)
    steps = [device.step(host_ms / 1e3, round_ms / 1e3) for _ in range(320)]
    alone_s = max(host_ms, round_ms) / 1e3 + DRAW_S
    assert sum(s for _, s in steps) / len(steps) < 1.05 * alone_s
    assert sum(n for n, _ in steps) / len(steps) > 0.8 * max(1, min(16, int((host_ms / 1e3 - DRAW_S) / round_ms * 1e3)))


def test_it_follows_a_batch_that_grows():
    device = Device()
    for _ in range(100):
        device.step(0.02, 0.002)
    assert device.rounds.num_rounds > 7
    slow = [device.step(0.02, 0.012) for _ in range(3)]
    assert [n for n, _ in slow][1:] == [1, 1]


def test_one_round_where_a_program_has_one():
    device = Device(max_rounds=1)
    assert {device.step(0.02, 0.001)[0] for _ in range(50)} == {1}


def test_steps_in_which_rows_ended_early_do_not_ask_for_more():
    rounds = HiddenRounds(16)
    for _ in range(50):
        rounds.observe(1, 0.02, 0.0)
    assert rounds.num_rounds == 2
