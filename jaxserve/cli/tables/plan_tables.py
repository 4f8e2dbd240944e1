"""Wiring: the report of `jaxserve plan` as tables."""

from collections.abc import Iterator, Sequence

from rich.markup import escape
from rich.table import Table

from jaxserve.analysis.capacity_report import CapacityReport, MemoryReport, StepRoofline
from jaxserve.analysis.program_info import ProgramInfo
from jaxserve.cli.tables.report_tables import byte_text, plain_table, print_report


def show(plan: CapacityReport) -> None:
    """Prints the report on standard output."""
    print_report((_memory(plan), _sequences(plan), _programs(plan), _lower_bounds(plan)), verdict(plan))


def verdict(plan: CapacityReport) -> list[str]:
    """The conclusion, in sentences."""
    if plan.problems:
        return ["FAILS:", *(f"  {problem}" for problem in plan.problems)]
    return ["Every program updates the pool in place.", *_fit(plan.memory), *_best_rate(plan.steps)]


def _fit(memory: MemoryReport) -> Iterator[str]:
    if memory.limit_bytes is None:
        yield "The memory of this device is not known, so it is not known whether the engine fits."
        return
    total, limit = byte_text(memory.total_bytes), byte_text(memory.limit_bytes)
    yield f"It fits: {total} of a device's {limit}, {memory.total_bytes / memory.limit_bytes:.0%}."
    if memory.total_bytes > memory.memory_utilization * memory.limit_bytes:
        needed, reserved = byte_text(memory.step_bytes + memory.code_bytes), byte_text(memory.reserved_bytes)
        yield (
            f"That is more than the {memory.memory_utilization:.0%} of memory_utilization: temporaries and code take "
            f"{needed}, {reserved} were reserved for them."
        )


def _best_rate(steps: Sequence[StepRoofline]) -> Iterator[str]:
    rates = {step.name: step.tokens_per_s for step in steps if step.tokens_per_s and step.num_tokens == step.num_rows}
    if rates:
        name = max(rates, key=rates.__getitem__)
        yield f"Decoding makes at most {rates[name]:,.0f} tokens/s ({name})."


def _memory(plan: CapacityReport) -> Table:
    memory = plan.memory
    title = (
        f"{plan.model} in {plan.dtype} on {plan.target}: {plan.num_devices} × {plan.device}; context "
        f"{plan.max_model_len:,}, {plan.max_num_seqs} sequences, {plan.max_num_batched_tokens:,} tokens per step"
    )
    table = plain_table(escape(title), "memory of one device", "")
    rows = {
        "weights": memory.weight_bytes,
        f"pool: {plan.num_pages:,} pages of {plan.page_size} positions": memory.pool_bytes,
        "slots": memory.slot_bytes,
        "temporaries of the largest program": memory.step_bytes,
        "code of the programs": memory.code_bytes or None,
        "all": memory.total_bytes,
        "the device": memory.limit_bytes,
    }
    for name, count in rows.items():
        table.add_row(name, byte_text(count), style="bold" if name == "all" else None)
    return table


def _sequences(plan: CapacityReport) -> Table:
    memory = plan.memory
    lengths = [f"{n:,} tokens" for n in memory.sequences]
    title = f"Sequences at once, if the pool takes all that is left of {memory.memory_utilization:.0%} of the memory"
    table = plain_table(title, "room for the pool", *lengths)
    if memory.room_bytes is not None:
        table.add_row(byte_text(memory.room_bytes), *(f"{n:,}" for n in memory.sequences.values()))
    else:
        table.add_row("not known")
    return table


def _programs(plan: CapacityReport) -> Table:
    title = "Programs, bytes on one device; traffic and collectives of one step (of a decode program: of one round)"
    columns = ("temporaries", "in place", "code", "traffic", "collectives", "compiled in")
    table = plain_table(title, "", *columns)
    for program in plan.programs:
        sizes = (program.temporary_bytes, program.aliased_bytes, program.code_bytes or None, program.traffic_bytes)
        table.add_row(escape(program.name), *map(byte_text, sizes), _collectives(program), f"{program.compile_s:.1f} s")
    return table


def _collectives(program: ProgramInfo) -> str:
    return "\n".join(f"{c.count} {c.kind}, {byte_text(c.num_bytes)}" for c in program.collectives) or "none"


def _lower_bounds(plan: CapacityReport) -> Table:
    title = (
        f"Lower bounds of a step (of a round), sequences of {plan.context:,} tokens where they fit: weights and KV "
        "read once, peak arithmetic"
    )
    columns = ("tokens each", "bytes", "operations of bfloat16", "memory", "arithmetic", "tokens/s")
    table = plain_table(title, "on each device", *columns)
    for step in plan.steps:
        amounts = (byte_text(step.floor.num_bytes), f"{step.floor.num_operations / 1e9:,.1f} G")
        times = (_ms(step.floor.bandwidth_s), _ms(step.floor.compute_s))
        rate = "not known" if step.tokens_per_s is None else f"{step.tokens_per_s:,.0f}"
        table.add_row(escape(step.name), f"{step.context:,}", *amounts, *times, rate)
    return table


def _ms(seconds: float | None) -> str:
    return "not known" if seconds is None else f"{seconds * 1e3:.2f} ms"
