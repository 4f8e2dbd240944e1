"""Host: the numbers an engine is built with where the user left them open, and what memory allows."""

import os
from dataclasses import dataclass

from jaxserve.core.errors import ConfigError
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.options.engine_config import LANES_PAGE_MULTIPLE, MEMORY_UTILIZATION, EngineConfig

CPU_POOL_BYTES = 2**30  # a laptop's memory is not the engine's alone, unlike an accelerator's


@dataclass(frozen=True, slots=True)
class EngineSizes:
    """Resolved sizes of one engine."""

    page_size: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_chunk_tokens: int
    num_pages: int
    num_host_pages: int
    lost_pages: int = 0  # that memory turned out not to hold


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """What one engine may use, in bytes over the whole mesh."""

    platform: str
    limit_bytes: int | None  # device memory, or physical memory of the host; None where the devices do not tell
    weight_bytes: int
    state_bytes: int  # slots: penalty counts, masks, edits
    step_bytes: int  # temporaries of the largest step


def resolve(
    config: EngineConfig, *, max_position: int, groups: KVGroups, page_bytes: int, memory: MemoryBudget
) -> EngineSizes:
    """The limits of an engine; a context that the user did not ask for shrinks to what the pool can hold."""
    max_num_seqs, max_tokens = step_limits(config, memory.platform)
    chunk = min(config.max_chunk_tokens or max_tokens, max_tokens)
    wanted_len = context_len(config, max_position)
    wanted_pages = 1 + max_num_seqs * max_sequence_pages(groups, wanted_len, chunk)
    num_pages = config.num_pages or min(wanted_pages, pool_bytes(config, memory) // page_bytes)
    fits = longest(groups, num_pages - 1, wanted_len, chunk)
    if fits < (config.max_model_len or 1):
        need = 1 + max_sequence_pages(groups, wanted_len, chunk)
        raise ConfigError(
            f"num_pages={num_pages} hold {fits} tokens of a sequence, less than max_model_len={wanted_len}, which "
            f"takes {need} pages ({need * page_bytes} bytes); raise num_pages or kv_cache_memory_bytes, or set "
            f"max_model_len to at most {fits}",
            param="max_model_len",
        )
    num_host_pages = host_pages(config, page_bytes)
    return EngineSizes(
        groups.page_size, min(wanted_len, fits), max_num_seqs, max_tokens, chunk, num_pages, num_host_pages
    )


def host_pages(config: EngineConfig, page_bytes: int) -> int:
    """Pages in host memory, which is this machine's."""
    wanted, physical = config.host_kv_cache_bytes, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if wanted > physical:
        raise ConfigError(
            f"host_kv_cache_bytes={wanted} is more than the {physical} bytes of memory here", "host_kv_cache_bytes"
        )
    if 0 < wanted < page_bytes:
        raise ConfigError(
            f"host_kv_cache_bytes={wanted} holds no page of {page_bytes} bytes; give it more, or 0",
            "host_kv_cache_bytes",
        )
    return wanted // page_bytes


def context_len(config: EngineConfig, max_position: int) -> int:
    """The context that is asked for, or the model's own."""
    wanted_len = config.max_model_len or max_position
    if wanted_len > max_position:
        raise ConfigError(
            f"max_model_len={wanted_len} is more than the model's context of {max_position} tokens",
            param="max_model_len",
        )
    return wanted_len


def page_size(config: EngineConfig, platform: str) -> int:
    default = 16 if platform == "cpu" else 64
    return config.page_size or (LANES_PAGE_MULTIPLE if config.kv_layout == "lanes" else default)


def step_limits(config: EngineConfig, platform: str) -> tuple[int, int]:
    """(max_num_seqs, max_num_batched_tokens); a CPU has far less arithmetic to fill a step with."""
    default_rows, default_tokens = (32, 512) if platform == "cpu" else (256, 2048)
    rows = config.max_num_seqs or min(default_rows, config.max_num_batched_tokens or default_rows)
    tokens = config.max_num_batched_tokens or max(default_tokens, rows)
    if tokens < rows:
        raise ConfigError(
            f"max_num_batched_tokens={tokens} is less than max_num_seqs={rows}, but every running sequence needs a "
            "token a step; raise the first or lower the second",
            param="max_num_batched_tokens",
        )
    return rows, tokens


def pool_bytes(config: EngineConfig, memory: MemoryBudget) -> int:
    """Bytes that the pool may take."""
    if config.kv_cache_memory_bytes is not None:
        return config.kv_cache_memory_bytes
    if memory.platform == "cpu" and config.memory_utilization is None:
        return CPU_POOL_BYTES
    if memory.limit_bytes is None:
        raise ConfigError(
            "the device does not tell its memory; set kv_cache_memory_bytes", param="kv_cache_memory_bytes"
        )
    share = memory_share(config)
    rest = fit_pool(memory.limit_bytes, share, memory.weight_bytes, memory.state_bytes, memory.step_bytes)
    if rest <= 0:
        raise ConfigError(
            f"memory_utilization={share} of {memory.limit_bytes} bytes leaves nothing for KV after weights "
            f"({memory.weight_bytes}), slots ({memory.state_bytes}) and steps ({memory.step_bytes}); raise it, lower "
            "max_num_seqs, or divide the model over more devices (tensor_parallel_size)",
            param="memory_utilization",
        )
    return rest


def fit_pool(limit_bytes: int, memory_utilization: float, *parts: int) -> int:
    """Bytes that `parts` leave for KV of the share of the memory that is used; negative by what is missing.

    parts: weights, slots, and what steps need: a bound before anything is compiled, then what the compiler says.
    """
    return int(limit_bytes * memory_utilization) - sum(parts)


def is_sized_by_memory(config: EngineConfig, memory: MemoryBudget) -> bool:
    """Whether the pool takes what memory leaves; else its size is given, or a CPU's default."""
    if config.num_pages is not None or config.kv_cache_memory_bytes is not None:
        return False
    return memory.platform != "cpu" or config.memory_utilization is not None


def memory_share(config: EngineConfig) -> float:
    """The share of a device's memory to use."""
    return config.memory_utilization or MEMORY_UTILIZATION


def max_sequence_pages(groups: KVGroups, num_tokens: int, chunk: int) -> int:
    """Pages that one sequence of `num_tokens` can hold at once; windowed groups hold a window and a chunk at most."""
    columns = groups.end_page(num_tokens)
    return sum(groups.num_columns(g, columns, chunk) for g in range(groups.num_groups))


def longest(groups: KVGroups, num_pages: int, wanted_len: int, chunk: int) -> int:
    """The longest sequence, up to `wanted_len`, that `num_pages` hold whole; 0 when they hold none."""
    low, high = 0, wanted_len
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if max_sequence_pages(groups, middle, chunk) <= num_pages else (low, middle - 1)
    return low
