"""Host: `collectives`, the data that devices exchange in one run of a compiled program."""

from collections import Counter
from dataclasses import dataclass

from jaxserve.runner.programs.hlo import Hlo, Instruction

OPCODES = {
    "all-reduce",
    "all-gather",
    "all-to-all",
    "reduce-scatter",
    "collective-permute",
    "collective-broadcast",
    "ragged-all-to-all",
}

Exchanges = Counter[tuple[str, int]]  # (kind, bytes of its result on a device) → count


@dataclass(frozen=True, slots=True)
class Collective:
    """All exchanges of one kind. num_bytes: the sum of their results on one device."""

    kind: str
    count: int
    num_bytes: int


def collectives(program: Hlo) -> tuple[Collective, ...]:
    """The exchanges by kind, most bytes first.

    A loop's exchanges count once for each iteration, or once if the number of iterations depends on data. Of branches
    the one with the most bytes counts.
    """
    counts, sizes = Counter[str](), Counter[str]()
    for (kind, num_bytes), count in _of_computation(program, program.entry, {}).items():
        counts[kind] += count
        sizes[kind] += count * num_bytes
    return tuple(Collective(kind, counts[kind], total) for kind, total in sizes.most_common())


def _of_computation(program: Hlo, name: str, known: dict[str, Exchanges]) -> Exchanges:
    if name not in known:
        known[name] = Exchanges()
        for line in program.computations[name]:
            known[name] += _of_instruction(program, line, known)
    return known[name]


def _of_instruction(program: Hlo, line: Instruction, known: dict[str, Exchanges]) -> Exchanges:
    if line.opcode.removesuffix("-done") in OPCODES:  # the result of a start includes its operands
        return Exchanges([(line.opcode.removesuffix("-done"), line.num_bytes)])
    if line.opcode.endswith(("-update", "-done")):  # an asynchronous call counts where it starts
        return Exchanges()
    inner = [_of_computation(program, name, known) for name in line.called]
    if line.opcode == "conditional":
        return max(inner, key=lambda found: sum(count * size for (_, size), count in found.items()))
    iterations = program.num_iterations(line) or 1 if line.opcode == "while" else 1
    return Exchanges({key: count * iterations for found in inner for key, count in found.items()})
