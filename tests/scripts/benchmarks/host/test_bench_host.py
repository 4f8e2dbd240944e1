"""The host benchmark divides the whole time of a step into parts, measures full slots, and reports met targets."""

from types import SimpleNamespace
from typing import Any

import pytest

from jaxserve.text.token_bytes import TokenBytes
from scripts.benchmarks.host.empty_model_engine import Spread, make_engine
from scripts.benchmarks.host.host_page import TARGETS_US, page, rows_of, verdicts
from scripts.benchmarks.host.measure_steps import PARTS, Case, measure
from scripts.benchmarks.host.part_clock import Clock

RAW = [b"", b"<end>", *(f" word{i}".encode() for i in range(100))]
TOKENIZER: Any = SimpleNamespace(
    decoding=TokenBytes(RAW, "replace", False), token_bytes=RAW, special_ids=frozenset([1]), vocab_size=len(RAW)
)


def test_a_part_is_timed_without_the_parts_within_it():
    now = 0

    def wait(ns):
        nonlocal now
        now += ns

    clock = Clock(lambda: now)
    pack = clock.watch("pack", lambda: wait(5_000))

    def submit():
        wait(1_000)
        pack()
        pack()
        wait(2_000)
        raise KeyError

    with pytest.raises(KeyError):
        clock.watch("submit", submit)()
    assert clock.take() == {"pack": 10, "submit": 3}
    assert clock.take() == {}


def test_a_sample_of_a_vocabulary_is_spread_over_it():
    spread = Spread(TOKENIZER, 10)
    assert spread.token_bytes == [f" word{i}".encode() for i in range(0, 100, 10)]


@pytest.mark.thorough
def test_all_parts_of_a_step_are_measured():
    llm = make_engine(TOKENIZER, 2, 32, 128)
    for case in (Case(2), Case(2, num_waiting=3), Case(2, is_streaming=True)):
        found = measure(llm, case, 6, seed=0)
        assert set(found["parts_us"]) == set(PARTS.values())
        assert all(value > 0 for value in found["parts_us"].values())
        assert found["p90_us"] >= found["total_us"] > max(found["parts_us"].values())
        assert not llm.output_processor.has_work


def record(total_us: float) -> dict[str, Any]:
    parts = dict.fromkeys(PARTS.values(), 20.0)
    rounds = [{"parts_us": parts, "total_us": total_us + i, "p10_us": 1.0, "p90_us": 2 * total_us} for i in range(3)]
    about = {
        "hardware": {"cpu": "X", "num_cores": 2, "memory_gib": 4},
        "versions": {"python": "3"},
        "commit": "c",
        "load": (1, 2),
    }
    return about | {
        "rounds": {"256 rows": rounds},
        "steps_of_a_round": 9,
        "vocab_size": 32,
        "tokenizer": "t",
        "date": "d",
    }


def test_targets_are_met_or_missed():
    assert set(TARGETS_US["256 rows"]) - {"total"} <= set(PARTS.values())
    lines = verdicts(record(899))
    assert len(lines) == 4
    assert all(line.endswith(": met") for line in lines)
    assert "256 rows, total: 901 µs of 900: **missed**" in verdicts(record(900))[0]


def test_the_page_shows_the_spread_of_the_rounds():
    assert "901 (900–902)" in rows_of(record(900))[1]
    assert "| 256 rows |" in page(record(900), ["--rounds", "3"])
