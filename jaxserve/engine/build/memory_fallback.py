"""Wiring: the retry loop for memory that runs out while an engine is made: its KV pool becomes smaller."""

import re
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.adapter_reading import max_adapter_pages
from jaxserve.engine.build.engine_sizes import may_have_fewer_rows
from jaxserve.engine.build.engine_spec import EngineSpec, make_spec
from jaxserve.engine.build.kv_pool_size import bytes_left, is_sized_by_memory, memory_share, policy_pages
from jaxserve.models.config.model_config import ModelConfig

KEPT_SHARE = 0.9  # of the pages stay where an error does not say how much memory is missing
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
SIZE = r"([\d.]+)\s?([KMGT]?)(?:i?B)?"
EXCEEDED = re.compile(rf"Exceeded hbm capacity by {SIZE}")
ATTEMPTED = re.compile(rf"[Aa]ttempting to (?:allocate|reserve) {SIZE}.*?There are {SIZE} free", re.DOTALL)


class MemoryShortage(Exception):
    """An engine that finds too little memory. missing: bytes of one device, None where not known."""

    def __init__(self, spec: EngineSpec, missing: int | None, why: str):
        super().__init__(why)
        self.spec, self.missing, self.why = spec, missing, why


def with_room[T](
    config: EngineConfig,
    spec: EngineSpec,
    model: ModelConfig,
    attempt: Callable[[EngineSpec], T],
    *,
    is_each_reported: bool = False,
) -> T:
    """Returns `attempt(spec)`; whenever that raises `MemoryShortage`, tries again with the next smaller spec.

    model: as its checkpoint describes it. is_each_reported: each retry is reported before it begins, not all of them
    at the end. Raises ConfigError where no smaller engine would do.
    """
    first, why = spec, ""
    while True:
        try:
            made = attempt(spec)
        except MemoryShortage as shortage:
            spec, why = _smaller(config, model, shortage), shortage.why
            if is_each_reported:
                _report(shortage.spec, spec, why)
        else:
            if spec is not first and not is_each_reported:
                _report(first, spec, why)
            return made


@contextmanager
def detect_shortage(spec: EngineSpec, why: str) -> Generator[None]:
    """Raises `MemoryShortage` where JAX runs out of device memory within it."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise MemoryShortage(spec, missing_bytes(error), why) from error


def is_out_of_memory(error: Exception) -> bool:
    return "RESOURCE_EXHAUSTED" in str(error)


def missing_bytes(error: Exception) -> int | None:
    """Bytes of one device by which an allocation or a program is too large; None where the error does not say."""
    if found := EXCEEDED.search(str(error)):
        return _bytes(*found.groups())
    if found := ATTEMPTED.search(str(error)):
        wanted, unit, free, free_unit = found.groups()
        return max(_bytes(wanted, unit) - _bytes(free, free_unit), 1)
    return None


def excess_bytes(config: EngineConfig, spec: EngineSpec, executables: Iterable[Any]) -> int:
    """Bytes of one device by which a pool that was sized by memory is too large, now that all programs are compiled."""
    memory, num_devices = spec.memory, spec.programs.settings.model.mesh.size
    if memory.limit_bytes is None or not is_sized_by_memory(config, memory):
        return 0
    stats = [executable.memory_analysis() for executable in executables]
    temporary = max(s.temp_size_in_bytes + s.output_size_in_bytes - s.alias_size_in_bytes for s in stats)
    code = sum(s.generated_code_size_in_bytes for s in stats)
    others = memory.weight_bytes, memory.state_bytes, temporary * num_devices, code * num_devices
    room = bytes_left(memory.limit_bytes, memory_share(config), *others)
    pool = spec.sizes.num_pages * spec.programs.layout.page_bytes
    return max(-(-(pool - room) // num_devices), 0)


def _smaller(config: EngineConfig, model: ModelConfig, shortage: MemoryShortage) -> EngineSpec:
    """The same engine with fewer pages, or, where these would not hold a sequence, for half as many at once.

    Raises ConfigError where a sequence of `max_model_len`, or of one chunk (and of what the KV policy keeps) where that
    was left open, would not fit, and the user chose how many run at once or it is few.
    """
    sizes, programs, memory = shortage.spec.sizes, shortage.spec.programs, shortage.spec.memory
    mesh, page_bytes = programs.settings.model.mesh, programs.layout.page_bytes
    before, chunk, packing = sizes.num_pages, sizes.max_chunk_tokens, programs.settings.model.packing
    if config.compiled is not None:
        raise ConfigError(
            f"{shortage.why}: the pool of num_pages={before} that {config.compiled} was compiled for does not fit. "
            "Free memory, or run `jaxserve compile` again with a smaller --num-pages or --memory-utilization",
            param="compiled",
        )
    least = chunk if config.streaming is None else max(chunk, config.streaming.capacity)
    shortest = min(config.max_model_len or least, sizes.max_model_len)
    sequence_pages = programs.groups.max_sequence_pages(shortest, chunk) + policy_pages(config, programs.groups)
    fewest = 1 + sequence_pages + max_adapter_pages(programs)
    lost = (
        before - int(before * KEPT_SHARE)
        if shortage.missing is None
        else -(-shortage.missing * mesh.size // page_bytes)
    )
    kept = replace(config, max_num_seqs=sizes.max_num_seqs, page_size=sizes.page_size)
    is_open = is_sized_by_memory(config, memory) and may_have_fewer_rows(config, sizes.max_num_seqs)
    if before - lost < fewest and is_open:
        fewer_rows = replace(kept, max_num_seqs=sizes.max_num_seqs // 2)
        limit_bytes = None if memory.limit_bytes is None else memory.limit_bytes // mesh.size
        return make_spec(fewer_rows, model, mesh, limit_bytes, shortage.spec.draft, packing)
    if before <= fewest:
        raise ConfigError(
            f"{shortage.why}, and fewer than num_pages={before} ({before * page_bytes:,} bytes) would not hold one "
            f"sequence of {shortest} tokens. Lower max_model_len, max_num_seqs or max_num_batched_tokens, or divide "
            "the model over more devices (tensor_parallel_size); if others use the device too, lower "
            "memory_utilization",
            param="num_pages",
        )
    fewer = max(before - max(lost, 1), fewest)
    options = replace(kept, num_pages=fewer, kv_cache_memory_bytes=None, memory_utilization=None)
    spec = make_spec(options, model, mesh, None, shortage.spec.draft, packing)
    return replace(spec, sizes=replace(spec.sizes, lost_pages=sizes.lost_pages + before - fewer), memory=memory)


def _report(before: EngineSpec, after: EngineSpec, why: str) -> None:
    """One line on standard error, whether progress is shown or not."""
    old, new = before.sizes, after.sizes
    lost_bytes = (old.num_pages - new.num_pages) * after.programs.layout.page_bytes
    text = f"the pool has {new.num_pages} pages instead of {old.num_pages} ({lost_bytes:,} bytes less)"
    if new.max_num_seqs < old.max_num_seqs:
        text = f"{new.max_num_seqs} sequences run at once instead of {old.max_num_seqs}"
    context = f", the context {new.max_model_len} tokens" if new.max_model_len < old.max_model_len else ""
    print(f"jaxserve: {why}: {text}{context}", file=sys.stderr)


def _bytes(number: str, unit: str) -> int:
    return int(float(number.rstrip(".")) * UNITS[unit])
