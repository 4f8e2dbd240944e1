"""Host: `read_hlo`, the instructions of a compiled program's text (HLO) by computation."""

import math
import re
from dataclasses import dataclass
from functools import cached_property

INSTRUCTION = re.compile(r"\s+(ROOT )?%?(\S+) = (.+?) ([a-z][a-z0-9-]*)\(")
COMPUTATION = re.compile(r"(ENTRY )?%?(\S+) \(.*\{$")
CALLED = re.compile(
    r"\b(?:calls|to_apply|body|true_computation|false_computation|branch_computations)=(?:\{([^}]*)\}|%?([^\s,]+))"
)
ARRAY = re.compile(r"\b([a-z]+)(\d*)[a-z0-9]*\[([\d,]*)\]")  # bf16[64,4096], f8e4m3fn[2], pred[]
FUSIONS = ("fusion", "fusion-start")
"""The second runs while others do, up to its "fusion-done"."""
WITH_LAYOUT = re.compile(r"\b[a-z]+\d*[a-z0-9]*\[[\d,]*\](?:\{[^}]*\})?")  # and where it lies, such as S(1)
KNOWN_COUNT = re.compile(r'"known_trip_count":\{"n":"(\d+)"')


@dataclass(frozen=True)
class Instruction:
    """One instruction. result: its type, a tuple type in parentheses. line: its text."""

    name: str
    result: str
    opcode: str
    line: str
    is_root: bool

    @property
    def num_bytes(self) -> int:
        """Bytes of the result."""
        return type_bytes(self.result)

    @property
    def operands(self) -> list[str]:
        """Names of its operands."""
        text = self.line.partition(f" {self.opcode}(")[2]
        depth, end = 1, 0
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        return re.findall(r"%([^\s,()]+)", text[:end])

    @property
    def description(self) -> str:
        """Opcode and name, and the model code that it comes from, where the compiler keeps it."""
        found = re.search(r'op_name="([^"]*)"', self.line)
        return f"{self.opcode} %{self.name}" + (f" of {found[1]}" if found else "")

    @property
    def called(self) -> list[str]:
        """Names of the computations that it calls; of a loop only the body."""
        names = [name for group in CALLED.findall(self.line) for name in (group[0] or group[1]).split(",")]
        return [name.strip().lstrip("%") for name in names]


@dataclass(frozen=True)
class Hlo:
    """Computations by name; `entry` is the program's entry computation."""

    computations: dict[str, list[Instruction]]
    entry: str

    @cached_property
    def instructions(self) -> list[Instruction]:
        return [line for lines in self.computations.values() for line in lines]

    @cached_property
    def in_memory(self) -> list[Instruction]:
        """Instructions outside fusions: a value inside one is no array in memory unless the fusion returns it."""
        fused = {name for line in self.instructions if line.opcode in FUSIONS for name in line.called}
        return [line for name, lines in self.computations.items() if name not in fused for line in lines]

    def by_name(self, computation: str) -> dict[str, Instruction]:
        return {line.name: line for line in self.computations[computation]}

    def root(self, computation: str) -> Instruction:
        return next(line for line in self.computations[computation] if line.is_root)

    def num_iterations(self, loop: Instruction) -> int | None:
        """Iterations of a loop; None where they depend on data.

        The compilers for CPU and GPU record the number; on TPU a scan's condition compares its counter with a constant.
        """
        if known := KNOWN_COUNT.search(loop.line):
            return int(known[1])
        condition = re.search(r"condition=%?([^\s,]+)", loop.line)
        lines = self.computations[condition[1]] if condition else []
        limits = [int(m[1]) for line in lines if (m := re.search(r"= s32\[\]\S* constant\((\d+)\)", line.line))]
        is_counted = any(line.is_root and "direction=LT" in line.line for line in lines)
        return limits[0] if is_counted and len(limits) == 1 else None


def read_hlo(text: str) -> Hlo:
    """Parse the text of `jax.stages.Compiled.as_text()`."""
    computations: dict[str, list[Instruction]] = {}
    entry = ""
    lines: list[Instruction] = []
    for line in text.splitlines():
        if found := COMPUTATION.match(line):
            lines = computations[found[2]] = []
            entry = found[2] if found[1] else entry
        elif found := INSTRUCTION.match(line):
            lines.append(Instruction(found[2], found[3], found[4], line, bool(found[1])))
    return Hlo(computations, entry)


def array_types(result: str) -> list[str]:
    """The types of the arrays in a type, with their layouts."""
    return WITH_LAYOUT.findall(result)


def type_bytes(result: str) -> int:
    """Bytes of a type such as "bf16[64,4096]{1,0}", or of a tuple of such; padding to tiles is not counted."""
    total = 0
    for kind, bits, sizes in ARRAY.findall(result):
        size = math.prod(int(n) for n in sizes.split(",") if n)
        total += size * (8 if kind == "pred" else int(bits or 0)) // 8
    return total
