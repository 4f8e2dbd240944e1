"""On a terminal one bar moves while no sample ends and shows what is compiled; a log file gets a few plain lines."""

import signal
import sys
import threading
import time

import pytest

from jaxserve.core import progress_bars
from jaxserve.core.compile_times import CompileTimes, about_left
from jaxserve.core.progress_bars import CompileBar, GenerateBar, LoadBar
from jaxserve.core.progress_displays import FIRST_LINE_S, LINE_PERIOD_S
from tests.support.signal_handlers import handlers


@pytest.fixture
def terminal(capsys, monkeypatch):
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda _: True)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until the test moves it."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def compile_times(monkeypatch, clock):
    """Those of a process that has compiled nothing yet."""
    own = CompileTimes()
    monkeypatch.setattr(progress_bars, "COMPILE_TIMES", own)
    return own


@pytest.fixture
def tick(monkeypatch):
    """Makes a bar look at the clock; none does on its own."""
    monkeypatch.setattr(progress_bars, "TICK_S", 1e9)

    def look(bar):
        if getattr(bar._display, "tqdm", None):
            bar._display.tqdm.mininterval = 0
        bar._show(bar._display)

    return look


def test_the_bar_moves_with_tokens_alone(capsys, terminal, tick):
    with GenerateBar(True, total=3) as bar:
        tick(bar)
        bar.update(1, 10)
        for _ in range(3):
            bar.update(0, 10)
    shown = capsys.readouterr().err
    assert "40 tokens" in shown
    assert "tokens/s" in shown
    assert "1/3 samples" in shown


def test_weights_are_counted_in_bytes(capsys, terminal):
    with LoadBar(True) as bar:
        bar.update(1024, 2048)
        bar.update(2048, 2048)
    assert "2.00k/2.00kB" in capsys.readouterr().err


def test_compiling_tells_what_is_compiled_and_how_long_is_left(capsys, terminal, clock, compile_times, tick):
    with CompileBar(True, 5) as bar:
        with compile_times.compiling("decode[tokens=8]"):
            clock[0] += 10
            tick(bar)
        bar.update("decode[tokens=8]")
        with compile_times.compiling("fork"):
            clock[0] += 2
            tick(bar)
    shown = capsys.readouterr().err
    assert "0/5 programs, compiling decode[tokens=8] for 10 s" in shown
    assert "1/5 programs, compiling fork for 2 s, about 48 s left" in shown


def test_a_step_that_compiles_is_seen_in_the_bar_of_what_waits_for_it(capsys, terminal, clock, compile_times, tick):
    with GenerateBar(True, total=3) as bar:
        with compile_times.compiling("mixed[tokens=32]"):
            clock[0] += 5
            tick(bar)
        with compile_times.compiling("decode[tokens=8]"):
            clock[0] += 2
            tick(bar)
        bar.update(1, 10)
    assert "Generating:   0%|" in (shown := capsys.readouterr().err)
    assert "0/3 samples, compiling mixed[tokens=32] for 5 s\r" in shown
    assert "0/3 samples, compiling decode[tokens=8] for 2 s, about 3 s left\r" in shown


def test_a_log_file_hears_of_a_long_compilation_meanwhile(capsys, clock, compile_times, tick):
    with GenerateBar(True, total=3) as bar, compile_times.compiling("mixed[tokens=32]"):
        clock[0] += 12
        tick(bar)
    assert capsys.readouterr().err == "Generating: 0/3 samples in 12.0 s, compiling mixed[tokens=32] for 12 s\n"


def test_a_bar_looks_at_the_clock_on_its_own(capsys, monkeypatch):
    """The thread that compiles cannot."""
    monkeypatch.setattr(progress_bars, "TICK_S", 0.001)
    seen = threading.Event()
    monkeypatch.setattr(progress_bars.COMPILE_TIMES, "status", lambda: seen.set() or "")
    with GenerateBar(True, total=3):
        assert seen.wait(60)


def test_a_bar_within_another_is_not_shown(capsys, terminal):
    with GenerateBar(True, total=3), LoadBar(True) as inner, CompileBar(True, 2) as third:
        inner.update(1, 2)
        third.update("fork")
    shown = capsys.readouterr().err
    assert "Generating" in shown
    assert "Loading" not in shown
    assert "Compiling" not in shown
    with LoadBar(True) as later:
        later.update(1, 2)
    assert "1.00/2.00B" in capsys.readouterr().err


def test_a_bar_switched_off_prints_nothing(capsys):
    with GenerateBar(False, total=3) as bar:
        bar.update(3, 10)
    assert capsys.readouterr().err == ""


def test_the_rate_is_that_of_the_last_seconds_without_compilation(capsys, terminal, clock, compile_times, tick):
    with GenerateBar(True, total=3) as bar:
        tick(bar)
        with compile_times.compiling("mixed[tokens=32]"):
            clock[0] += 100
        for _ in range(4):
            clock[0] += 1
            bar.update(0, 50)
    shown = capsys.readouterr().err
    assert "50 tokens, 50.0 tokens/s" in shown
    assert "200 tokens, 50.0 tokens/s" in shown


def test_the_time_left_counts_neither_compilation_nor_what_was_done_before(
    capsys, terminal, clock, compile_times, tick
):
    with GenerateBar(True, total=100, n=50) as bar:
        tick(bar)
        with compile_times.compiling("mixed[tokens=32]"):
            clock[0] += 1000
        clock[0] += 10
        bar.update(10, 0)
    assert "60/100 samples, 0 tokens, 0.0 tokens/s, about 40 s left" in capsys.readouterr().err


def test_lines_that_failed_at_once_promise_no_end_while_a_step_compiles(capsys, clock, compile_times, tick):
    with GenerateBar(True, total=12) as bar:
        bar.update(3, 0)
        with compile_times.compiling("mixed[tokens=32]"):
            clock[0] += 12
            tick(bar)
    shown = capsys.readouterr().err.splitlines()[0]
    assert shown == "Generating: 3/12 samples, 0 tokens in 12.0 s, compiling mixed[tokens=32] for 12 s"


def test_an_estimate_has_few_digits():
    times = {0.4: "0 s", 119: "119 s", 150: "2 min", 5000: "83 min", 9000: "2 h"}
    assert {about_left(seconds) for seconds in times} == {f"about {text} left" for text in times.values()}


def test_programs_that_are_compiled_at_once_count_once(clock):
    times = CompileTimes()
    with times.compiling("a"), times.compiling("b"):
        clock[0] += 10
        assert times.status() == "compiling a for 10 s"
    clock[0] += 5
    assert times.work_s() == 1005
    assert times.status() == ""


@pytest.fixture
def interrupts():
    """SIGINT raises KeyboardInterrupt."""
    with handlers(signal.default_int_handler, signal.SIGINT):
        yield


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("where", ["_show_first", "_show", "close"])
def test_an_interrupt_leaves_the_line_to_the_next_bar(capsys, monkeypatch, tick, where):
    owner = progress_bars.ProgressLines if where == "close" else GenerateBar
    method, number = getattr(owner, where), signal.SIGINT

    def interrupted(*args):
        method(*args)
        signal.raise_signal(number)

    with monkeypatch.context() as patched:
        patched.setattr(owner, where, interrupted)
        with pytest.raises(KeyboardInterrupt), GenerateBar(True, total=3) as bar:
            bar.update(1, 1)
    with GenerateBar(True, total=3) as bar:
        bar.update(3, 1)
    assert "Generating: 3/3" in capsys.readouterr().err


@pytest.mark.usefixtures("interrupts")
def test_an_interrupted_compilation_is_over():
    times = CompileTimes()
    for where in ("_begin", "_end"):
        method = getattr(times, where)

        def interrupted(*args, method=method):
            method(*args)
            signal.raise_signal(signal.SIGINT)

        setattr(times, where, interrupted)
        with pytest.raises(KeyboardInterrupt), times.compiling("a"):
            pass
        setattr(times, where, method)
        assert times.status() == ""


def test_a_log_file_gets_one_line_at_the_end_of_a_short_phase(capsys, clock, compile_times):
    with LoadBar(True) as bar:
        for done in range(0, 2_000_001, 1000):
            clock[0] += 0.004
            bar.update(done, 2_000_000)
    assert capsys.readouterr().err == "Loading weights: 2.0 of 2.0 MB in 8.0 s\n"
    with GenerateBar(True, total=2) as bar:
        for _ in range(20):
            bar.update(0, 2)
        bar.update(2, 2)
    assert capsys.readouterr().err == "Generating: 2/2 samples, 42 tokens in 0.0 s\n"


def test_the_lines_of_a_long_phase_are_ever_rarer_up_to_every_five_minutes(capsys, clock, compile_times, tick):
    with CompileBar(True, 10_000) as bar:
        for i in range(10_000):
            clock[0] += 1
            bar.update(f"program {i}")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"Compiling: 10/10000 programs in {FIRST_LINE_S} s, program 9, about 3 h left"
    assert [line.split("/")[0] for line in lines[1:4]] == ["Compiling: 20", "Compiling: 40", "Compiling: 80"]
    assert lines[-1] == "Compiling: 10000/10000 programs in 10000.0 s"
    assert len(lines) == 6 + (10_000 - 320) // LINE_PERIOD_S + 1


def test_a_phase_in_which_nothing_happened_leaves_no_line(capsys):
    with LoadBar(True):
        pass
    assert capsys.readouterr().err == ""
