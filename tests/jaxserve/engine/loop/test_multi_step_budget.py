"""As many rounds as fit in 50 ms, by the duration of the last step."""

import pytest

from jaxserve.engine.loop.multi_step_budget import MAX_STEP_S, MultiStepBudget


def test_one_round_until_a_step_was_seen():
    assert MultiStepBudget(16).num_rounds == 1


@pytest.mark.parametrize(
    ("round_s", "expected"), [(0.004, 12), (0.024, 2), (0.026, 1), (0.3, 1), (1e-4, 16), (0.0, 16)]
)
def test_steps_take_50_ms_at_most(round_s, expected):
    budget = MultiStepBudget(16)
    budget.observe(4, 4 * round_s)
    assert budget.num_rounds == expected
    assert budget.num_rounds * round_s <= MAX_STEP_S or budget.num_rounds == 1


def test_a_step_whose_rows_had_all_ended_says_nothing():
    """It takes a millisecond, and the next request would otherwise begin with 16 rounds of 24."""
    budget = MultiStepBudget(16)
    budget.observe(1, 0.024)
    budget.observe(0, 0.001)
    assert budget.num_rounds == 2
