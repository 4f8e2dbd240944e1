"""Of two proposers each row has the one by which it gains, and steps have the width by which they gain: little is lost
against knowing both before."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from jaxserve.scheduler.costs import earned_passes
from tests.jaxserve.scheduler.draft_replay import Acceptance, Rates, Records, Replay, Static
from tests.support.golden_data import FOLDER

SECONDS: dict[Static, float] = {None: 1.0, (0, 5): 1.05, (1, 5): 1.4}
TWO_WIDTHS: dict[Static, float] = {None: 1.0, (0, 2): 1.15, (0, 5): 1.5, (1, 2): 1.4, (1, 5): 2.0}
"""In the mixtures of seed 2 two drafts are best three times, and five six times."""
RECORDED = json.loads((FOLDER / "draft_traces.json").read_text())
PROPOSERS = ("ngram", "eagle3")


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([[0.9] * 4, [0.6] * 4], [0] * 4),
        ([[0.0] * 4, [0.8] * 4], [1] * 4),
        ([[0.9, 0.0, 0.9, 0.0], [0.7, 0.9, 0.7, 0.9]], [0, 1, 0, 1]),
        ([[0.0] * 4, [0.1] * 4], [2] * 4),
    ],
)
def test_each_row_has_the_proposer_by_which_it_gains(rates, expected):
    run = Replay(Rates(rates), SECONDS)
    for _ in range(400):
        run.step()
    assert run.chosen.argmax(axis=0).tolist() == expected
    assert (run.chosen.max(axis=0) > 300).all()


def regrets(
    acceptance: Callable[[], Acceptance], seconds, num_steps: int, read_s: float | None = None
) -> tuple[float, float]:
    """Shares of the tokens in a given time, of the best static choice, that are lost by the engine's choice, and
    without drafts."""
    rates = dict[Static, float]()
    for static in seconds:
        run = Replay(acceptance(), seconds, read_s)
        for _ in range(num_steps):
            run.step_as(static)
        rates[static] = run.rate
    chosen = Replay(acceptance(), seconds, read_s)
    for _ in range(num_steps):
        chosen.step()
    best = max(rates.values())
    return 1 - chosen.rate / best, 1 - rates[None] / best


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    ("seed", "read_s", "seconds"), [(0, None, SECONDS), (1, None, SECONDS), (0, 0.08, SECONDS), (2, None, TWO_WIDTHS)]
)
def test_regret_against_the_best_static_choice_is_small(seed, read_s, seconds):
    """In 10 random mixtures of rows; a choice that never tries loses more. read_s: a draft model catches up
    in passes of 0.08."""
    random, lost, naive = np.random.default_rng(seed), list[float](), list[float]()
    for trace in range(10):
        rates = random.choice([0.0, 0.3, 0.6, 0.8, 0.95], (2, 4))
        regret, without = regrets(lambda rates=rates, trace=trace: Rates(rates, trace), seconds, 1000, read_s)
        lost.append(regret)
        naive.append(without)
    assert max(lost) <= 0.05
    assert np.mean(naive) > 0.2


def recorded_regret(num_rows: int, num_steps: int, seed: int | None = None) -> float:
    """Of questions and copies of SmolLM2, whose steps were timed on two CPU cores (scripts/goldens/draft_traces.py).
    seed: of where rows begin; None: all at their text's first token."""
    seconds: dict[Static, float] = {None: RECORDED["seconds"][str(num_rows)]["none"]}
    for i, name in enumerate(PROPOSERS):
        by_width = RECORDED["seconds"][str(num_rows)][name]
        seconds |= {(i, int(width)): passed for width, passed in by_width.items()}
    accepted = [RECORDED["accepted"][name] for name in PROPOSERS]

    def records() -> Records:
        return Records(accepted, num_rows, None if seed is None else np.random.default_rng(seed))

    return regrets(records, seconds, num_steps)[0]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("num_rows", [1, 8, 32])
def test_regret_in_recorded_texts_is_small(num_rows, seed):
    """32 rows gain 34 % at best, and a trial of theirs takes 2.5 passes, so it comes once in a text."""
    assert recorded_regret(num_rows, 4000 if seed is None else 2000, seed) <= 0.05


def test_the_control_rows_that_stop_at_once_lose_more(monkeypatch):
    regret = recorded_regret(32, 2000, 0)
    monkeypatch.setattr(earned_passes, "MOST_EARNED", 0.0)
    assert recorded_regret(32, 2000, 0) > 2 * regret


def test_recorded_texts_differ_in_what_they_gain():
    """A static choice loses in some of them: with one row n-grams gain in copies, and nothing in answers."""
    seconds = {None: 1.0, (0, 5): 1.2, (1, 5): 1.5}
    accepted = np.array([RECORDED["accepted"][name] for name in PROPOSERS])
    without = [regrets(lambda one=one: Records(accepted[:, one:][:, :1], 1), seconds, 200)[1] for one in range(20)]
    assert min(without) == 0
    assert max(without) > 0.4


def test_the_slower_proposer_is_not_used_for_one_row_of_many():
    """One row in four gains by it, at the cost of all others."""
    run = Replay(Rates([[0.9, 0.9, 0.9, 0.0], [0.0, 0.0, 0.0, 0.6]]), SECONDS | {(1, 5): 3.0})
    for _ in range(400):
        run.step()
    assert (run.chosen[0, :3] > 300).all()
    assert run.chosen[1].max() < 20
