"""Wiring: memory that runs out while an engine is made: its pool becomes smaller and the user is told."""

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import jax

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.engine_spec import EngineSpec, make_spec
from jaxserve.engine.build.memory_plan import fit_pool, is_sized_by_memory, max_sequence_pages, memory_share
from jaxserve.engine.build.scarce_sizes import may_have_fewer_rows
from jaxserve.models.config.model_config import ModelConfig

SHARE = 0.9  # of the pages stay where a message does not tell how much memory is missing
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
SIZE = r"([\d.]+)\s?([KMGT]?)(?:i?B)?"
EXCEEDED = re.compile(rf"Exceeded hbm capacity by {SIZE}")
ATTEMPTED = re.compile(rf"[Aa]ttempting to (?:allocate|reserve) {SIZE}.*?There are {SIZE} free", re.DOTALL)


def with_room[T](
    config: EngineConfig, blueprint: EngineSpec, model: ModelConfig, make: Callable[[EngineSpec], T]
) -> tuple[EngineSpec, T]:
    """What `make` makes of a blueprint, or, where memory runs out, of the first smaller one that finds room."""
    drawn, why = blueprint, "memory ran out while the pool was made"
    while True:
        try:
            made = make(blueprint)
            break
        except jax.errors.JaxRuntimeError as error:
            if not is_out_of_memory(error):
                raise
            missing = missing_bytes(error)
        blueprint = shrunk(config, blueprint, model, missing, why)
    if blueprint is not drawn:
        tell(drawn, blueprint, why)
    return blueprint, made


def is_out_of_memory(error: Exception) -> bool:
    return "RESOURCE_EXHAUSTED" in str(error)


def missing_bytes(error: Exception) -> int | None:
    """Bytes of one device by which an allocation or a program is too large; None where the message does not tell."""
    if found := EXCEEDED.search(str(error)):
        return _bytes(*found.groups())
    if found := ATTEMPTED.search(str(error)):
        wanted, unit, free, free_unit = found.groups()
        return max(_bytes(wanted, unit) - _bytes(free, free_unit), 1)
    return None


def excess_bytes(config: EngineConfig, blueprint: EngineSpec, executables: Iterable[Any]) -> int:
    """Bytes of one device by which a pool that was sized by memory is too large, now that all programs are compiled."""
    memory, num_devices = blueprint.memory, blueprint.programs.settings.model.mesh.size
    if memory.limit_bytes is None or not is_sized_by_memory(config, memory):
        return 0
    facts = [executable.memory_analysis() for executable in executables]
    temporary = max(f.temp_size_in_bytes + f.output_size_in_bytes - f.alias_size_in_bytes for f in facts)
    code = sum(f.generated_code_size_in_bytes for f in facts)
    others = memory.weight_bytes, memory.state_bytes, temporary * num_devices, code * num_devices
    room = fit_pool(memory.limit_bytes, memory_share(config), *others)
    pool = blueprint.limits.num_pages * blueprint.programs.layout.page_bytes
    return max(-(-(pool - room) // num_devices), 0)


def shrunk(
    config: EngineConfig, blueprint: EngineSpec, model: ModelConfig, missing: int | None, why: str
) -> EngineSpec:
    """The same engine with fewer pages, or, where these would not hold a sequence, for half as many at once.

    model: as its checkpoint describes it. missing: bytes of one device; None: not known. Raises ConfigError where a
    sequence of `max_model_len`, or of one chunk where that was left open, would not fit, and the user chose how many
    run at once or it is few.
    """
    limits, programs = blueprint.limits, blueprint.programs
    sizes = replace(config, max_num_seqs=limits.max_num_seqs, page_size=limits.page_size)
    mesh, page_bytes = programs.settings.model.mesh, programs.layout.page_bytes
    before, chunk = limits.num_pages, limits.max_chunk_tokens
    if config.compiled is not None:
        raise ConfigError(
            f"{why}: the pool of num_pages={before} that {config.compiled} was compiled for does not fit. Free memory, "
            "or run `jaxserve compile` again with a smaller --num-pages or --memory-utilization",
            param="compiled",
        )
    shortest = min(config.max_model_len or chunk, limits.max_model_len)
    fewest = 1 + max_sequence_pages(programs.groups, shortest, chunk)
    lost = before - int(before * SHARE) if missing is None else -(-missing * mesh.size // page_bytes)
    is_open = is_sized_by_memory(config, blueprint.memory) and may_have_fewer_rows(config, limits.max_num_seqs)
    if before - lost < fewest and is_open:
        limit_bytes = blueprint.memory.limit_bytes
        fewer_rows = replace(sizes, max_num_seqs=limits.max_num_seqs // 2)
        return make_spec(fewer_rows, model, mesh, None if limit_bytes is None else limit_bytes // mesh.size)
    if before <= fewest:
        raise ConfigError(
            f"{why}, and fewer than num_pages={before} ({before * page_bytes:,} bytes) would not hold one sequence of "
            f"{shortest} tokens. Lower max_model_len, max_num_seqs or max_num_batched_tokens, or divide the "
            "model over more devices (tensor_parallel_size); if others use the device too, lower memory_utilization",
            param="num_pages",
        )
    fewer = max(before - max(lost, 1), fewest)
    smaller = replace(sizes, num_pages=fewer, kv_cache_memory_bytes=None, memory_utilization=None)
    drawn = make_spec(smaller, model, mesh, limit_bytes=None)
    limits = replace(drawn.limits, lost_pages=limits.lost_pages + before - fewer)
    return replace(drawn, limits=limits, memory=blueprint.memory)


def tell(before: EngineSpec, after: EngineSpec, why: str) -> None:
    """One line on standard error, whether progress is shown or not."""
    old, new = before.limits, after.limits
    lost_bytes = (old.num_pages - new.num_pages) * after.programs.layout.page_bytes
    text = f"the pool has {new.num_pages} pages instead of {old.num_pages} ({lost_bytes:,} bytes less)"
    if new.max_num_seqs < old.max_num_seqs:
        text = f"{new.max_num_seqs} sequences run at once instead of {old.max_num_seqs}"
    context = f", the context {new.max_model_len} tokens" if new.max_model_len < old.max_model_len else ""
    print(f"jaxserve: {why}: {text}{context}", file=sys.stderr)


def _bytes(number: str, unit: str) -> int:
    return int(float(number.rstrip(".")) * UNITS[unit])
