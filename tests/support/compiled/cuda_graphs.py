"""Which conditions and loops of a GPU's program are parts of CUDA graphs, by the list of operations that XLA writes.

For any other the host waits, but not for loops whose turns it counts.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

# The second where there are no graphs: programs of few operations have none.
LISTS = ("*.thunk_sequence_after_thunk_passes.txt", "*.thunk_sequence.txt")
GRAPH, LOOP, CONDITION, SLICE = "CommandBuffer", "While", "Conditional", "DynamicSliceFusion"


class Operation(NamedTuple):
    """kind: such as `LOOP`. within: the kinds of the operations that it is a part of, the outermost first."""

    kind: str
    within: tuple[str, ...]


@contextmanager
def listed_operations() -> Iterator[tuple[dict[str, Any], list[Operation]]]:
    """Options with which to compile one program, and its operations, once the block has ended."""
    operations: list[Operation] = []
    with TemporaryDirectory() as folder:
        yield {"xla_dump_to": folder, "xla_dump_hlo_as_text": True}, operations
        file = next(file for pattern in LISTS for file in Path(folder).glob(pattern))
        operations += _parse(file.read_text(encoding="utf-8"))


@contextmanager
def assert_no_waits() -> Iterator[dict[str, Any]]:
    """Options with which to compile one program; asserts that its conditions are parts of graphs that CUDA takes."""
    with listed_operations() as (options, operations):
        yield options
    assert CONDITION in {op.kind for op in operations}, "the sampler has some"
    assert set(waits(operations)) <= {LOOP}
    assert not slices_in_branches(operations)


def waits(operations: list[Operation]) -> list[str]:
    """Conditions and loops outside of graphs."""
    return [op.kind for op in operations if op.kind in (LOOP, CONDITION) and GRAPH not in op.within]


def slices_in_branches(operations: list[Operation]) -> list[Operation]:
    """Slices in a condition of a graph. CUDA refuses such graphs when the program runs: "Failed to create a child graph
    node" (driver 580, jaxlib 0.11.2)."""
    return [op for op in operations if op.kind == SLICE and GRAPH in op.within and CONDITION in op.within]


def _parse(text: str) -> Iterator[Operation]:
    """Of lines such as "    003: kWhile [...", in which parts are indented."""
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        if found := re.match(r"( *)\d+: k(\w+)", line):
            depth, kind = len(found[1]), found[2]
            path = [outer for outer in path if outer[0] < depth]
            yield Operation(kind, tuple(kind for _, kind in path))
            path.append((depth, kind))
