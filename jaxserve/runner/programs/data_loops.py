"""Host: `data_loops`, the loops of a compiled program that end by data.

A GPU asks the host before each turn of those that run layers; others are parts of its graphs (`compiler_options.py`).
"""

from collections.abc import Iterator

from jaxserve.core.buckets import Bucket
from jaxserve.runner.programs.hlo import Hlo


def most_loops(bucket: Bucket, *, has_draft_model: bool) -> int:
    """Of a step of decode and verify buckets: one over its rounds, if it may have several, and one over the passes in
    which a draft model reads what it has missed, usually none."""
    return (bucket.max_rounds > 1) + has_draft_model


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
