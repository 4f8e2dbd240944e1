"""Wiring: the memory that an engine would take on a target, and its best speed, from programs compiled but not run."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from jaxserve.analysis.capacity_report import CapacityReport, MemoryReport, StepRoofline
from jaxserve.analysis.kv_info import LENGTHS
from jaxserve.analysis.plan_target import PlanTarget
from jaxserve.analysis.program_info import ProgramInfo, describe_program
from jaxserve.analysis.step_costs import model_costs
from jaxserve.core.hardware.mesh import device_bytes
from jaxserve.core.hardware.roofline import step_roofline
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.engine_spec import EngineSpec, make_spec
from jaxserve.engine.build.kv_pool_size import (
    bytes_left,
    longest_sequence,
    memory_share,
    num_sequences,
    pages_for_sequences,
)
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.packing import DENSE, Packing
from jaxserve.runner.drafts.proposers import DraftShape
from jaxserve.runner.programs.executables import Executables

CONTEXT = 2048


def spec_for(
    config: EngineConfig,
    model: ModelConfig,
    target: PlanTarget,
    draft: DraftShape | None = None,
    packing: Packing = DENSE,
) -> EngineSpec:
    """The engine that `build` would make of the same options on the target's devices. draft, packing: as of
    `make_spec`."""
    config = replace(config, tensor_parallel_size=target.mesh.size)
    return make_spec(config, model, target.mesh, target.limit_bytes, draft, packing)


def plan_model(
    config: EngineConfig,
    spec: EngineSpec,
    target: PlanTarget,
    context: int | None,
    on_compiled: Callable[[str], None],
) -> CapacityReport:
    """The report on an engine, all of whose programs are compiled for it.

    context: positions of a sequence in the steps whose rooflines are computed; None: `CONTEXT`, or the engine's context
    where that is shorter. on_compiled: called with each program's name.
    """
    programs = spec.programs
    needed = programs.all(spec.buckets.all())
    executables = Executables(partial(describe_program, state=programs.state))
    executables.compile_all(needed, on_compiled)
    infos = tuple(executables.by_name[program.name] for program in needed)
    memory = _memory(config, spec, target, infos)
    problems = [f"{program.name}: {problem}" for program in infos for problem in program.problems]
    if target.limit_bytes is not None and memory.total_bytes > target.limit_bytes:
        missing = memory.total_bytes - target.limit_bytes
        problems.append(f"it takes {missing:,} bytes more than the {target.limit_bytes:,} of a device")
    sizes = spec.sizes
    context = min(context or CONTEXT, sizes.max_model_len)
    return CapacityReport(
        model=config.model,
        target=target.name,
        device=target.mesh.devices.flat[0].device_kind,
        num_devices=target.mesh.size,
        dtype=str(programs.settings.model.dtype),
        page_size=sizes.page_size,
        num_pages=sizes.num_pages,
        max_model_len=sizes.max_model_len,
        max_num_seqs=sizes.max_num_seqs,
        max_num_batched_tokens=sizes.max_num_batched_tokens,
        context=context,
        memory=memory,
        programs=infos,
        steps=tuple(_steps(spec, target, context)),
        problems=tuple(problems),
    )


def _memory(config: EngineConfig, spec: EngineSpec, target: PlanTarget, infos: tuple[ProgramInfo, ...]) -> MemoryReport:
    programs, sizes = spec.programs, spec.sizes
    num_devices = target.mesh.size
    weight_bytes = device_bytes(programs.weights)
    pool_bytes = device_bytes(programs.state.kv)
    slot_bytes = device_bytes(programs.state) - pool_bytes
    step_bytes = max(program.temporary_bytes for program in infos)
    code_bytes = sum(program.code_bytes for program in infos)
    room_bytes, sequences, share = None, {}, memory_share(config)
    if target.limit_bytes is not None:
        room_bytes = bytes_left(target.limit_bytes, share, weight_bytes, slot_bytes, step_bytes, code_bytes)
        lengths = sorted({n for n in LENGTHS if n < sizes.max_model_len} | {sizes.max_model_len})
        num_pages = pages_for_sequences(room_bytes * num_devices, programs.layout.page_bytes)
        sequences = num_sequences(programs.groups, num_pages, lengths)
    return MemoryReport(
        limit_bytes=target.limit_bytes,
        memory_utilization=share,
        weight_bytes=weight_bytes,
        slot_bytes=slot_bytes,
        pool_bytes=pool_bytes,
        step_bytes=step_bytes,
        reserved_bytes=spec.memory.step_bytes // num_devices,
        code_bytes=code_bytes,
        total_bytes=weight_bytes + slot_bytes + pool_bytes + step_bytes + code_bytes,
        room_bytes=room_bytes,
        sequences=sequences,
    )


def _steps(spec: EngineSpec, target: PlanTarget, asked: int) -> Iterator[StepRoofline]:
    programs, costs = spec.programs, model_costs(spec.programs)
    for bucket in spec.buckets.all():
        context = longest_sequence(programs.groups, (programs.num_pages - 1) // bucket.num_rows, asked, chunk=1)
        roofline = step_roofline(costs, bucket.num_tokens, bucket.num_rows, context, target.device)
        rate = None if roofline.step_s is None else bucket.num_tokens / roofline.step_s
        yield StepRoofline(str(bucket), bucket.num_tokens, bucket.num_rows, context, roofline, rate)
