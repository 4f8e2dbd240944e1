"""Wiring: `CapacityReport`, the result of `jaxserve plan` in plain values."""

from dataclasses import dataclass

from jaxserve.analysis.program_info import ProgramInfo
from jaxserve.core.hardware.roofline import Roofline


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes of one device; None where its memory is not known.

    pool_bytes: taken by the engine's pool. step_bytes: temporaries of the largest program. reserved_bytes: what the
    engine reserves for these before it compiles. code_bytes: of all programs. total_bytes: the sum of all these but
    reserved_bytes. room_bytes: for a pool that takes all that the others leave; negative by what is missing. sequences:
    how many of each length this room holds at once.
    """

    limit_bytes: int | None
    memory_utilization: float
    weight_bytes: int
    slot_bytes: int
    pool_bytes: int
    step_bytes: int
    reserved_bytes: int
    code_bytes: int
    total_bytes: int
    room_bytes: int | None
    sequences: dict[int, int]


@dataclass(frozen=True, slots=True)
class StepRoofline:
    """The roofline of a step of one bucket; `floor` is its name in JSON.

    context: tokens of each sequence: as many as were asked for, or as the pool holds. tokens_per_s: of the whole mesh,
    None where a peak rate is not known.
    """

    name: str
    num_tokens: int
    num_rows: int
    context: int
    floor: Roofline
    tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """An engine on a target. problems: reasons not to serve with it, in sentences."""

    model: str
    target: str
    device: str
    num_devices: int
    dtype: str
    page_size: int
    num_pages: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    context: int
    memory: MemoryReport
    programs: tuple[ProgramInfo, ...]
    steps: tuple[StepRoofline, ...]
    problems: tuple[str, ...]
