"""Reads the TPU compiler's dump of a kernel's schedule: each loop's bundles, busy slots, DMAs, and memory."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LINE = re.compile(r"\s*(0x[0-9a-f]+|0)\s+(?:(\w\w):)?\s*:?\s*([> ]*?)\s*:?\s*\{")
DMA = re.compile(r"dma\.(\w+_to_\w+) .*?/\*size_in_granules=\*/(\d*)")
SCRATCH = re.compile(r"\[shape = '\w+\[([\d,]+)\]\S*', space=vmem, .*?tag = 'scratch operand'")
BRANCH = re.compile(r"sbr\.rel .*?target = \$region(\d+)")
STARTED = re.compile(r"Start(?:/End empty)? region (\d+)")
ALLOCATION = re.compile(r"space=(vmem|smem), size = (0x[0-9a-f]+), offset = (0x[0-9a-f]+|0), scoped")
EMPTY = re.compile(r"\{\s*\}")
GRANULE_BYTES = 32


@dataclass(frozen=True)
class Loop:
    """One loop of a kernel, without the loops inside it. The path "" stands for the code outside all loops."""

    path: str
    """Order of appearance by depth: "2.1" is the first loop in the second one."""
    bundles: int
    """VLIW instructions of one pass, without empty ones, if no branch is taken; each takes at least one cycle."""
    empty: int
    """Bundles that do nothing but wait."""
    branched_over: int
    """Bundles of the loop, without empty ones, that a branch in it can skip."""
    slots: dict[str, int]
    """Filled slots by name (MXU, XLU, VALU …)."""
    dmas: dict[str, tuple[int, int]]
    """By direction (hbm_to_vmem …): the number of DMAs, and their bytes together; 0 bytes if not static."""


@dataclass(frozen=True)
class Kernel:
    name: str
    loops: tuple[Loop, ...]
    capacity: dict[str, int]
    """Number of slots of each name in a bundle."""
    vmem_bytes: int
    smem_bytes: int
    scratch: tuple[tuple[int, ...], ...]
    """Shapes of its buffers in VMEM, in the order of its arguments."""

    def occupancy(self, loop: Loop, slot: str) -> float:
        """Share of the loop's slots of this name that are filled."""
        return loop.slots[slot] / (self.capacity[slot] * loop.bundles) if loop.bundles else 0.0


def read_kernels(folder: Path) -> list[Kernel]:
    """All kernels (custom calls) of a dump, in the order of compilation, with duplicates."""
    return [_read_kernel(file) for file in sorted(folder.glob("*-final_bundles.txt")) if _is_kernel(file)]


def _is_kernel(file: Path) -> bool:
    """Whether the file holds a kernel; TLP is the program around the kernels."""
    if "schedule-analysis" in file.name or re.match(r"\d+-TLP-", file.name):
        return False
    return 'custom_call_target="tpu_custom_call"' in _stage_text(file, "schedule-analysis_final_bundles")


def _stage_text(file: Path, stage: str) -> str:
    """The text of another stage of the same kernel."""
    stem = re.sub(r"-\d+-final_bundles\.txt$", "", file.name)
    found = sorted(p for p in file.parent.iterdir() if re.fullmatch(rf"{re.escape(stem)}-\d+-{stage}\.txt", p.name))
    return found[-1].read_text() if found else ""


def _read_kernel(file: Path) -> Kernel:
    head, _, rows = _stage_text(file, "final_hlo-static-per-bundle-utilization").partition("== UTILIZATION:")
    names, capacity = head.strip().splitlines()[1:3]
    slots = [name.strip() for name in names.split(",")]
    lines = [line for line in file.read_text().splitlines() if LINE.match(line)]
    usage = [[int(x) for x in row.split()] for row in rows.strip().splitlines()]
    if len(usage) != len(lines):
        raise ValueError(f"{file.name}: {len(lines)} bundles, {len(usage)} rows of utilization; is the dump complete?")
    is_empty = [bool(EMPTY.search(line)) for line in lines]
    paths = list(_paths(lines))
    is_skipped = _branched_over(lines, paths)
    loops: dict[str, list[int]] = {}
    for index, path in enumerate(paths):
        loops.setdefault(path, []).append(index)
    allocations = _stage_text(file, "post-delay-converter")
    memory = _memory(allocations)
    return Kernel(
        name=re.sub(r"^\d+-|\.\d+-\d+-final_bundles\.txt$|-\d+-final_bundles\.txt$", "", file.name),
        loops=tuple(
            Loop(
                path=path,
                bundles=sum(not is_empty[i] for i in indices),
                empty=sum(is_empty[i] for i in indices),
                branched_over=sum(is_skipped[i] and not is_empty[i] for i in indices),
                slots={slot: sum(usage[i][column] for i in indices) for column, slot in enumerate(slots)},
                dmas=_dmas(lines[i] for i in indices),
            )
            for path, indices in loops.items()
        ),
        capacity=dict(zip(slots, map(int, capacity.split()), strict=True)),
        vmem_bytes=memory["vmem"],
        smem_bytes=memory["smem"],
        scratch=tuple(tuple(map(int, sizes.split(","))) for sizes in SCRATCH.findall(allocations)),
    )


def _paths(lines: list[str]) -> Iterator[str]:
    """The loop of each bundle: '>' marks give its depth, LB the start of a loop."""
    path: list[int] = []
    num_children = [0]
    for line in lines:
        mark, depth = _mark(line)
        if EMPTY.search(line):  # unmarked: it belongs to the loop of the previous bundle
            yield ".".join(map(str, path))
            continue
        del path[depth - 1 if mark == "LB" else depth :]
        del num_children[len(path) + 1 :]
        while len(path) < depth:
            num_children[-1] += 1
            path.append(num_children[-1])
            num_children.append(0)
        yield ".".join(map(str, path))


def _mark(line: str) -> tuple[str | None, int]:
    match = LINE.match(line)
    assert match
    return match[2], match[3].count(">")


def _branched_over(lines: list[str], paths: list[str]) -> list[bool]:
    """Whether each bundle lies between a forward branch of its own loop and the region that the branch jumps to."""
    starts: dict[str, list[int]] = {}
    for index, line in enumerate(lines):
        for region in STARTED.findall(line):
            starts.setdefault(region, []).append(index)
    is_skipped = [False] * len(lines)
    for index, line in enumerate(lines):
        for region in BRANCH.findall(line):
            target = next((at for at in starts.get(region, ()) if at > index), index)
            for at in range(index + 1, target):
                is_skipped[at] = is_skipped[at] or paths[at] == paths[index]
    return is_skipped


def _dmas(lines: Iterator[str]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for line in lines:
        for direction, granules in DMA.findall(line):
            count, num_bytes = found.get(direction, (0, 0))
            found[direction] = count + 1, num_bytes + GRANULE_BYTES * int(granules or 0)
    return found


def _memory(allocations: str) -> dict[str, int]:
    """Bytes up to the end of the last allocation: buffers of the kernel, its pipeline and its spilled registers."""
    ends = {"vmem": 0, "smem": 0}
    for space, size, offset in ALLOCATION.findall(allocations):
        ends[space] = max(ends[space], int(size, 16) + int(offset, 16))
    return ends
