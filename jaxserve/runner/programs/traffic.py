"""Host: `memory_traffic`, the bytes that one run of a compiled program reads from a device's memory and writes to it.

An array counts as often as an instruction outside fusions reads or writes it, and a part that is sliced or gathered
counts alone. What a TPU keeps in its fast memories counts nowhere. A loop counts as often as it turns, or once where
that depends on data, such as the loop over the tokens of a dispatch. Of a conditional the branch with the most bytes
counts; of one within a branch, which serves an option of requests, that with the least.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from jaxserve.runner.programs.hlo import FUSIONS, Hlo, Instruction, array_types, type_bytes

FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id"}
TAKES_A_PART = {"dynamic-slice", "slice", "gather"}
REPLACES_A_PART = {"dynamic-update-slice", "scatter"}
OTHER_TILES = "output_to_operand_aliasing={{}: (0, {})}"
"""Of a fusion within a fusion, which reads 8-bit numbers in tiles of another size than they are stored in."""
INDEX = re.compile(r"get-tuple-element\(.*\bindex=(\d+)")
ONE_LAYER_KERNEL = re.compile(r'[/"](?:matmul_tiles|block_tiles|multiply_blocks(?:_(\d+)_times)?)/')
"""In the name of a call of a kernel that reads one layer of stacks [layers, parts, columns, …] (`mosaic_gpu` in
`pallas_kernels/matmul` and `pallas_kernels/quant_matmul`) or [layers, parts, …, columns] (`mosaic_tpu` there). Programs
for several TPUs have names without scopes. The number is how often it reads the layer."""
STACK = re.compile(r"\w+\[(\d+),\d+,\d+,\d+\]")
ROWS_KERNEL, COLUMNS_KERNEL = re.compile(r'[/"]table_rows/'), re.compile(r'[/"]column_rows/')
"""In the name of a call of a kernel that reads of tables [rows, width] the tiles of 32 rows in which some rows lie, of
tables [width, rows] those of 128."""
TABLE = re.compile(r"\w+\[(\d+),(\d+)\]")


def memory_traffic(program: Hlo, ignored: Collection[str] = ()) -> int:
    """Bytes read and written in one run.

    ignored: types, such as the KV pool's, of which a kernel reads some pages; in any shape.
    """
    return _Counter(program, frozenset(_kind_and_bytes(one) for one in ignored), {}).of_computation(
        program.entry, is_branch=False
    )


@dataclass(frozen=True, slots=True)
class _Counter:
    program: Hlo
    ignored: frozenset[tuple[str, int]]  # kind of numbers, and bytes
    known: dict[tuple[str, bool], int]  # bytes by computation

    def of_computation(self, name: str, *, is_branch: bool) -> int:
        key = name, is_branch
        if key not in self.known:
            by_name = self.program.by_name(name)
            self.known[key] = sum(self.of_instruction(line, by_name, is_branch=is_branch) for line in by_name.values())
        return self.known[key]

    def of_instruction(self, line: Instruction, by_name: dict[str, Instruction], *, is_branch: bool) -> int:
        if line.opcode in FREE or line.opcode.endswith(("-done", "-update")):  # counted where they start
            return 0
        if line.opcode in FUSIONS:
            return self._reads(line, by_name) + self._writes(line, by_name)
        if line.opcode == "conditional":
            branches = [self.of_computation(name, is_branch=True) for name in line.called]
            return min(branches) if is_branch else max(branches)
        inner = [self.of_computation(name, is_branch=is_branch) for name in line.called]
        if line.opcode == "while":
            return sum(inner) * (self.program.num_iterations(line) or 1)
        if line.opcode in ("call", "call-start", "async-start"):
            return sum(inner)
        return self._reads(line, by_name) + self._writes(line, by_name)

    def _reads(self, line: Instruction, by_name: dict[str, Instruction]) -> int:
        total = 0
        for i, name in enumerate(line.operands):
            if name in by_name and (whole := self._bytes(by_name[name].result)):
                part = self._part(line, i, by_name[name].result)
                total += whole if part is None else part
        return total

    def _part(self, line: Instruction, operand: int, result: str) -> int | None:
        """Bytes that an instruction reads of an operand of type `result`; None: all."""
        is_kernel = line.opcode == "custom-call"
        if is_kernel and (kernel := ONE_LAYER_KERNEL.search(line.line)) and (stack := STACK.match(result)):
            return type_bytes(result) // int(stack[1]) * int(kernel[1] or 1)
        if is_kernel and ROWS_KERNEL.search(line.line) and (table := TABLE.match(result)):
            taken = TABLE.match(array_types(line.result)[0])
            assert taken
            return min(type_bytes(result) // int(table[1]) * 32 * int(taken[1]), type_bytes(result))
        if is_kernel and COLUMNS_KERNEL.search(line.line) and (table := TABLE.match(result)):
            taken = TABLE.match(array_types(line.result)[0])
            assert taken
            return min(type_bytes(result) // int(table[2]) * 128 * int(taken[1]), type_bytes(result))
        if operand == 0 and line.opcode.removesuffix("-start") in TAKES_A_PART:
            taken_bytes = sum(map(type_bytes, _started(line) if line.opcode.endswith("-start") else [line.result]))
            return min(taken_bytes, type_bytes(result))
        if operand == 0 and line.opcode in REPLACES_A_PART:
            return 0
        if line.opcode not in FUSIONS:
            return None
        inside = self.program.by_name(line.called[0])
        is_operand = re.compile(rf"parameter\({operand}\)")
        names = {one.name for one in inside.values() if one.opcode == "parameter" and is_operand.search(one.line)}
        total = 0
        for user in inside.values():
            for i in (i for i, name in enumerate(user.operands) if name in names):
                part = self._part(user, i, inside[user.operands[i]].result)
                if not user.is_root and (user.opcode == "bitcast" or OTHER_TILES in user.line):
                    names.add(user.name)  # a view: what reads it counts
                elif part is None:
                    return None
                else:
                    total += part
        return min(total, type_bytes(result))

    def _writes(self, line: Instruction, by_name: dict[str, Instruction]) -> int:
        if line.opcode in FUSIONS:
            root = self.program.root(line.called[0])
            if root.opcode == "dynamic-update-slice":
                inside = self.program.by_name(line.called[0])
                return type_bytes(inside[root.operands[1]].result) if self._bytes(root.result) else 0
            if line.opcode == "fusion-start":
                return self._bytes(root.result)
        if line.opcode.endswith("-start"):
            return sum(map(self._bytes, _started(line)))
        if line.opcode == "dynamic-update-slice":
            return self._bytes(by_name[line.operands[1]].result)
        if not line.result.startswith("("):
            return self._bytes(line.result)
        taken = set(self._taken_results(line, by_name))  # the rest is scratch, such as the workspace of a product
        return sum(self._bytes(one) for i, one in enumerate(array_types(line.result)) if i in taken)

    def _taken_results(self, line: Instruction, by_name: dict[str, Instruction]) -> Iterator[int]:
        for user in by_name.values():
            if user.opcode == "get-tuple-element" and user.operands[:1] == [line.name]:
                found = INDEX.search(user.line)
                assert found
                yield int(found[1])

    def _bytes(self, result: str) -> int:
        """Bytes of a type's arrays in main memory."""
        return sum(type_bytes(one) for one in array_types(result) if not self._is_elsewhere(one))

    def _is_elsewhere(self, array: str) -> bool:
        return "S(" in array or _kind_and_bytes(array) in self.ignored


def _started(line: Instruction) -> list[str]:
    """The types of the arrays that an instruction begins to write. Its result is a tuple: of a copy with them first, of
    others with the operands first, one or a tuple of them, then what is written, one or as many."""
    arrays = array_types(line.result)
    if line.opcode == "copy-start" or len(arrays) == 1:
        return arrays[:1]
    if not line.result.startswith("(("):
        return arrays[1:2]
    operands, _, rest = line.result.partition("),")
    num_operands = len(array_types(operands))
    return arrays[num_operands : 2 * num_operands] if rest.lstrip().startswith("(") else arrays[num_operands:][:1]


def _kind_and_bytes(array: str) -> tuple[str, int]:
    return array.partition("[")[0], type_bytes(array)
