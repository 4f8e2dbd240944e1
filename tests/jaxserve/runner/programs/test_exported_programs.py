"""Every program of an engine with all options is exported and read back, steps excepted (`test_kept_programs`)."""

from dataclasses import replace

import pytest

from jaxserve.runner.programs.exported_programs import export_program, from_exported
from tests.support.tiny_engines import tiny_engine

NAMES = (
    "draw[rows=8]",
    "fork",
    "set_edits",
    "set_mask",
    "set_counts",
    "save_pages",
    "load_pages",
    "set_history",
    "copy_sinks",
)


@pytest.fixture(scope="module")
def programs():
    plain = tiny_engine("llama3").parts.runner.programs
    return {
        program.name: program
        for program in replace(plain, has_host_tier=True, history_len=64, num_sinks=3).all(buckets=[])
    }


def test_all_programs_are_named_here(programs):
    assert tuple(programs) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_read_back_and_compiled(programs, name):
    program = programs[name]
    again = from_exported(program, export_program(program))
    assert again.compile().in_tree == program.compile().in_tree
