"""Wiring: one compiled program: its memory, what its devices exchange, and whether it copies the pool or weights."""

import time
from dataclasses import dataclass
from typing import Any

import jax

from jaxserve.core.hardware.mesh import device_bytes
from jaxserve.runner.programs.collectives import Collective, collectives
from jaxserve.runner.programs.data_loops import data_loops, most_loops
from jaxserve.runner.programs.hlo import read_hlo
from jaxserve.runner.programs.pool_aliasing import local_type, pool_copies
from jaxserve.runner.programs.program import Program
from jaxserve.runner.programs.traffic import memory_traffic
from jaxserve.runner.programs.weight_copies import weight_copies

BYTES_PER_INSTRUCTION = 5500
"""Host memory per HLO instruction of a program on CPU, for machine code and for XLA's description of the program:
measured 4,800 to 6,300 for SmolLM2-135M (8,100 to 9,500 instructions) and Gemma 3 270M with jaxlib 0.11.2."""


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """Bytes are of one device.

    temporary_bytes: without the arguments, results included unless they alias a donated argument. code_bytes: estimated
    on CPU, 0 where the compiler does not report it. traffic_bytes: read and written in one round, without what the
    attention kernels read and write of the pool. problems: reasons not to serve with it, in sentences.
    """

    name: str
    temporary_bytes: int
    aliased_bytes: int
    code_bytes: int
    traffic_bytes: int
    collectives: tuple[Collective, ...]
    problems: tuple[str, ...]
    compile_s: float


def describe_program(program: Program, state: Any) -> ProgramInfo:
    """Compiles a program; state: the `DeviceState` of shapes that it must update in place."""
    started_s, platform = time.monotonic(), program.mesh.devices.flat[0].platform
    try:
        compiled = program.compile()
    except jax.errors.JaxRuntimeError as error:
        problem = f"the compiler refuses it: {str(error).partition('\n')[0]}"
        return ProgramInfo(program.name, 0, 0, 0, 0, (), (problem,), time.monotonic() - started_s)
    memory, text = compiled.memory_analysis(), compiled.as_text()
    assert memory is not None, "every compiler of JAX reports memory"
    assert text is not None, "and the program's text"
    hlo, aliased_bytes, state_bytes = read_hlo(text), memory.alias_size_in_bytes, device_bytes(state)
    problems: list[str] = []
    if aliased_bytes < state_bytes:  # small arrays may be padded to whole tiles
        problems.append(f"it aliases {aliased_bytes:,} of the state's {state_bytes:,} bytes: the rest is there twice")
    for name, array in {"pool": state.kv.pool, **state.kv.extra}.items():
        if copies := pool_copies(hlo, array, memory.temp_size_in_bytes):
            problems.append(f"it makes {len(copies)} arrays of the {name}'s shape, the first by {copies[0]}")
    num_tokens = program.num_heads
    if program.bucket and program.bucket.only_decodes:
        num_tokens = program.bucket.num_tokens
        has_draft_model = program.bucket.is_verify and state.draft_lens is not None
        most = most_loops(program.bucket, has_draft_model=has_draft_model)
        if platform == "gpu" and len(loops := data_loops(hlo)) > most:
            problems.append(f"it has {len(loops)} loops that end by data and wait for the host: {', '.join(loops)}")
    if num_tokens and (copies := weight_copies(hlo, program.args[0], num_tokens, platform)):
        problems.append(f"it copies {len(copies)} weights before it multiplies, the first by {copies[0]}")
    if platform == "cpu":  # its compiler reports none
        code_bytes = BYTES_PER_INSTRUCTION * len(hlo.instructions)
    else:
        code_bytes = memory.generated_code_size_in_bytes
    return ProgramInfo(
        name=program.name,
        temporary_bytes=memory.temp_size_in_bytes + memory.output_size_in_bytes - aliased_bytes,
        aliased_bytes=aliased_bytes,
        code_bytes=code_bytes,
        traffic_bytes=memory_traffic(hlo, set(map(local_type, jax.tree.leaves(state.kv)))),
        collectives=collectives(hlo),
        problems=tuple(problems),
        compile_s=time.monotonic() - started_s,
    )
