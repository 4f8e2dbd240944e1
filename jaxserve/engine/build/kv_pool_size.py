"""Host: the size of the KV pool: how many pages memory leaves room for, and how long a sequence they hold."""

from collections.abc import Iterable
from dataclasses import dataclass

from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.host_memory import host_memory_bytes
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.options.engine_config import MEMORY_UTILIZATION, EngineConfig
from jaxserve.kv.streaming_policy import StreamingPolicy

CPU_POOL_BYTES = 2**30  # a laptop's memory is not the engine's alone, unlike an accelerator's


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """What one engine may use, and what its parts other than the pool take, in bytes over the whole mesh.

    limit_bytes: device memory, on CPU the host's physical memory; None where the devices do not report it. state_bytes:
    slots, with penalty counts, masks and edits. step_bytes: temporaries of the largest step.
    """

    platform: str
    limit_bytes: int | None
    weight_bytes: int
    state_bytes: int
    step_bytes: int


def pool_bytes(config: EngineConfig, memory: MemoryBudget) -> int:
    """Bytes that the pool may take."""
    if config.kv_cache_memory_bytes is not None:
        return config.kv_cache_memory_bytes
    if memory.platform == "cpu" and config.memory_utilization is None:
        return CPU_POOL_BYTES
    if memory.limit_bytes is None:
        raise ConfigError(
            "the device does not report its memory; set kv_cache_memory_bytes", param="kv_cache_memory_bytes"
        )
    share = memory_share(config)
    rest = bytes_left(memory.limit_bytes, share, memory.weight_bytes, memory.state_bytes, memory.step_bytes)
    if rest <= 0:
        raise ConfigError(
            f"memory_utilization={share} of {memory.limit_bytes} bytes leaves nothing for KV after weights "
            f"({memory.weight_bytes}), slots ({memory.state_bytes}) and steps ({memory.step_bytes}); raise it, lower "
            "max_num_seqs, or divide the model over more devices (tensor_parallel_size)",
            param="memory_utilization",
        )
    return rest


def bytes_left(limit_bytes: int, memory_utilization: float, *parts: int) -> int:
    """Bytes left for KV after `parts`, within the fraction of memory to use; negative if the parts exceed it.

    parts: weights, slots, and what steps need: a bound before anything is compiled, then the compiler's figure.
    """
    return int(limit_bytes * memory_utilization) - sum(parts)


def is_sized_by_memory(config: EngineConfig, memory: MemoryBudget) -> bool:
    """Whether the pool takes what memory leaves; otherwise its size is given, or the default on CPU."""
    if config.num_pages is not None or config.kv_cache_memory_bytes is not None:
        return False
    return memory.platform != "cpu" or config.memory_utilization is not None


def memory_share(config: EngineConfig) -> float:
    """The share of a device's memory to use."""
    return config.memory_utilization or MEMORY_UTILIZATION


def num_host_pages(config: EngineConfig, page_bytes: int) -> int:
    """Pages in host memory; raises ConfigError where it has less than is asked for."""
    asked, physical = config.host_kv_cache_bytes, host_memory_bytes()
    if asked > physical:
        raise ConfigError(
            f"host_kv_cache_bytes={asked} is more than the {physical} bytes of memory here", "host_kv_cache_bytes"
        )
    if 0 < asked < page_bytes:
        raise ConfigError(
            f"host_kv_cache_bytes={asked} holds no page of {page_bytes} bytes; give it more, or 0",
            "host_kv_cache_bytes",
        )
    return asked // page_bytes


def policy_pages(config: EngineConfig, groups: KVGroups) -> int:
    """Pages that a sequence has outside its page tables."""
    return 0 if config.streaming is None else StreamingPolicy(config.streaming).num_own_pages(groups)


def pages_for_sequences(room_bytes: int, page_bytes: int) -> int:
    """The pages of a pool of so many bytes, without page 0, the scratch page."""
    return max(room_bytes // page_bytes - 1, 0)


def num_sequences(groups: KVGroups, num_pages: int, lengths: Iterable[int]) -> dict[int, int]:
    """How many sequences of each length decode at once in so many pages."""
    return {n: num_pages // groups.num_pages(n, n) for n in lengths}


def longest_sequence(groups: KVGroups, num_pages: int, max_len: int, chunk: int) -> int:
    """The longest sequence, of up to `max_len` tokens, that `num_pages` hold whole; 0 where they hold none."""
    low, high = 0, max_len
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if groups.max_sequence_pages(middle, chunk) <= num_pages else (low, middle - 1)
    return low
