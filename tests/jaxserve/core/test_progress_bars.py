"""On a terminal bars move while no sample ends; a log file gets a few plain lines."""

import sys

import pytest

from jaxserve.core import progress_bars
from jaxserve.core.progress_bars import FIRST_LINE_S, CompileBar, GenerateBar, LoadBar


@pytest.fixture
def terminal(capsys, monkeypatch):
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda _: True)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until the test moves it."""
    now = [1000.0]
    monkeypatch.setattr(progress_bars.time, "monotonic", lambda: now[0])
    return now


def test_the_bar_moves_with_tokens_alone(capsys, terminal):
    with GenerateBar(True, total=3) as bar:
        bar._bar.mininterval = 0
        bar.update(1, 10)
        for _ in range(3):
            bar.update(0, 10)
    shown = capsys.readouterr().err
    assert "40 tokens" in shown
    assert "tokens/s" in shown
    assert "1/3" in shown


def test_weights_are_counted_in_bytes(capsys, terminal):
    with LoadBar(True) as bar:
        bar.update(1024, 2048)
        bar.update(2048, 2048)
    assert "2.00k/2.00k" in capsys.readouterr().err


def test_compiling_names_the_last_program_that_is_done(capsys, terminal):
    with CompileBar(True, 2) as bar:
        bar._bar.mininterval = 0
        for name in ("decode[tokens=8]", "fork"):
            bar.update(name)
    shown = capsys.readouterr().err
    assert "decode[tokens=8]" in shown
    assert "2/2" in shown


def test_a_bar_switched_off_prints_nothing(capsys):
    with GenerateBar(False, total=3) as bar:
        bar.update(3, 10)
    assert capsys.readouterr().err == ""


def test_the_rate_is_that_of_the_last_seconds_so_compilation_before_does_not_count(capsys, terminal, clock):
    with GenerateBar(True, total=3) as bar:
        bar._bar.mininterval = 0
        for seconds in (100, 1, 1, 1):
            clock[0] += seconds
            bar.update(0, 50)
    assert "200 tokens, 50.0 tokens/s" in capsys.readouterr().err


def test_a_log_file_gets_one_line_at_the_end_of_a_short_phase(capsys, clock):
    with LoadBar(True) as bar:
        for done in range(0, 2_000_001, 1000):
            clock[0] += 0.01
            bar.update(done, 2_000_000)
    assert capsys.readouterr().err == "Loading weights: 2.0 of 2.0 MB in 20.0 s\n"
    with GenerateBar(True, total=2) as bar:
        for _ in range(20):
            bar.update(0, 2)
        bar.update(2, 2)
    assert capsys.readouterr().err == "Generating: 2/2 samples, 42 tokens in 0.0 s\n"


def test_the_lines_of_a_long_phase_are_ever_rarer(capsys, clock):
    with CompileBar(True, 100_000) as bar:
        for i in range(100_000):
            clock[0] += 1
            bar.update(f"program {i}")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"Compiling: 60/100000 programs in {FIRST_LINE_S} s"
    assert lines[1].startswith("Compiling: 120/")
    assert lines[-1] == "Compiling: 100000/100000 programs in 100000.0 s"
    assert len(lines) == 12


def test_a_phase_in_which_nothing_happened_leaves_no_line(capsys):
    with LoadBar(True):
        pass
    assert capsys.readouterr().err == ""
