"""Host: `data_loops`, the loops of a compiled program that end by data, for each turn of which a GPU asks the host."""

from collections.abc import Iterator

from jaxserve.runner.programs.hlo import Hlo

OF_A_STEP = 1
"""Of a decode step: over its rounds. Of another step: over the rows whose penalty counts are cleared, usually none."""
OF_A_DRAFT_MODEL = 1
"""More in a verify bucket: passes in which the draft model reads what it has missed, usually none."""


def data_loops(program: Hlo) -> list[str]:
    """Loops whose number of turns depends on data, but for those in a branch of a branch, which serve an option of
    requests."""
    return list(_of_computation(program, program.entry, num_branches=0))


def _of_computation(program: Hlo, name: str, num_branches: int) -> Iterator[str]:
    for line in program.computations[name]:
        if line.opcode == "while" and program.num_iterations(line) is None:
            yield line.description
        depth = num_branches + (line.opcode == "conditional")
        if line.opcode in ("while", "conditional", "call") and depth < 2:
            for called in line.called:
                yield from _of_computation(program, called, depth)
