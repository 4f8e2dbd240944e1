"""Wiring: what a plan says, in plain values."""

from dataclasses import dataclass

from jaxserve.analysis.program_info import ProgramInfo
from jaxserve.core.hardware.roofline import Roofline


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes of one device; None where its memory is not known.

    pool_bytes: that the engine takes. step_bytes: temporaries of the largest program. reserved_bytes: what the engine
    reserves for them before it compiles. code_bytes: of all programs. total_bytes: of all these but
    reserved_bytes.
    room_bytes: for a pool, were it to take all that the others leave; negative by what is missing. sequences: how many
    of each length the room holds at once.
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
class ProgramReport:
    """A bucket's program at the floor.

    context: tokens of a sequence, as many as were asked for or as the pool holds. tokens_per_s: of the whole mesh, None
    where a peak rate is not known.
    """

    name: str
    num_tokens: int
    num_rows: int
    context: int
    floor: Roofline
    tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """All of it in plain values. problems: why it must not be served so; the verdict sums them up."""

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
    steps: tuple[ProgramReport, ...]
    problems: tuple[str, ...]
