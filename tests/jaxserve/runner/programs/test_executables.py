"""Programs are compiled once each, concurrently, and an error in one of them is raised at once."""

import threading
import time

import pytest

from jaxserve.core.compile_times import COMPILE_TIMES
from jaxserve.core.errors import FrozenBucketError
from jaxserve.runner.programs.executables import Executables
from jaxserve.runner.programs.program import Program


def named(name: str) -> Program:
    """A program of which only the name is used."""
    program = object.__new__(Program)
    object.__setattr__(program, "name", name)
    return program


PROGRAMS = [named(name) for name in "abcdef"]


def test_all_are_compiled_and_each_is_told():
    compiled, names = [], []
    executables = Executables(lambda program: compiled.append(program.name) or program.name.upper())
    executables.get("a", lambda: PROGRAMS[0])
    executables.compile_all(PROGRAMS, names.append)
    assert sorted(compiled) == sorted(names) == list("abcdef")
    assert executables.by_name == {name: name.upper() for name in "abcdef"}


def test_compilations_overlap():
    running, most = set(), []

    def compile_slowly(program):
        running.add(threading.get_ident())
        most.append(len(running))
        time.sleep(0.02)
        running.discard(threading.get_ident())

    Executables(compile_slowly).compile_all(PROGRAMS, lambda name: None)
    assert max(most) > 1


def test_an_error_ends_the_warm_up_and_what_is_compiled_stays():
    begun = []

    def fail_at_c(program):
        begun.append(program.name)
        if program.name == "c":
            raise MemoryError("no room for c")
        time.sleep(0.01)
        return program.name

    executables = Executables(fail_at_c)
    with pytest.raises(MemoryError, match="no room for c"):
        executables.compile_all(PROGRAMS * 50, lambda name: None)
    assert len(begun) < 100
    assert executables.get("a", lambda: PROGRAMS[0]) == "a"


def test_progress_displays_and_logs_hear_what_is_compiled(caplog):
    """Logs hear of programs that are compiled when they are needed; in a warm-up all would be a line each."""
    said = []
    executables = Executables(lambda program: said.append(COMPILE_TIMES.status()))
    with caplog.at_level("INFO", "jaxserve"):
        executables.get("a", lambda: PROGRAMS[0])
        executables.get("a", lambda: PROGRAMS[0])
        executables.compile_all(PROGRAMS[1:2], lambda name: None)
    assert said == ["compiling a for 0 s", "compiling b for 0 s"]
    assert caplog.messages == ["compiling a"]
    assert COMPILE_TIMES.status() == ""


def test_after_freezing_only_compiled_programs_are_there():
    executables = Executables(lambda program: program.name)
    executables.compile_all(PROGRAMS[:2], lambda name: None)
    executables.freeze()
    assert executables.get("b", lambda: PROGRAMS[1]) == "b"
    with pytest.raises(FrozenBucketError, match=r"c was not compiled during warm-up.*compiled programs: a, b"):
        executables.get("c", lambda: PROGRAMS[2])
