"""Host: `EngineSizes`: options that were left open get values, smaller ones where memory is scarce."""

from dataclasses import dataclass, replace

from jaxserve.core.errors import ConfigError
from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.options.engine_config import LANES_PAGE_MULTIPLE, EngineConfig
from jaxserve.engine.build.kv_pool_size import (
    MemoryBudget,
    is_sized_by_memory,
    longest_sequence,
    num_host_pages,
    policy_pages,
    pool_bytes,
)
from jaxserve.scheduler.step_limits import check_token_budget

MIN_ROWS, MIN_PAGE_SIZE = 8, 16
MIN_ROW_TOKENS = 256  # of the pool for each sequence; with fewer, sequences would mostly preempt one another
MIN_ROW_PAGES = 8  # the last page of a sequence is half empty on average: a sixteenth of so many


@dataclass(frozen=True, slots=True)
class EngineSizes:
    """Sizes of one engine, all decided. lost_pages: pages that were planned, before memory ran out."""

    page_size: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_chunk_tokens: int
    num_pages: int
    num_host_pages: int
    lost_pages: int = 0


def resolve(
    config: EngineConfig,
    *,
    max_position: int,
    groups: KVGroups,
    page_bytes: int,
    memory: MemoryBudget,
    adapter_pages: int = 0,
) -> EngineSizes:
    """The sizes of an engine; a context that was left open shrinks to what the pool can hold.

    max_position: the model's context. adapter_pages: of an adapter of the highest rank. Raises ConfigError where the
    options contradict one another or memory.
    """
    max_num_seqs, max_tokens = max_rows_and_tokens(config, memory.platform)
    chunk = min(config.max_chunk_tokens or max_tokens, max_tokens)
    wanted_len = context_len(config, max_position)
    own_pages = policy_pages(config, groups)
    sequence_pages = groups.max_sequence_pages(wanted_len, chunk) + own_pages
    wanted_pages = 1 + max_num_seqs * sequence_pages + config.max_loras * adapter_pages
    num_pages = config.num_pages or min(wanted_pages, pool_bytes(config, memory) // page_bytes)
    fits = longest_sequence(groups, num_pages - 1 - adapter_pages - own_pages, wanted_len, chunk)
    if fits < (config.max_model_len or 1):
        need = 1 + sequence_pages + adapter_pages
        raise ConfigError(
            f"num_pages={num_pages} hold {fits} tokens of a sequence, less than max_model_len={wanted_len}, which "
            f"takes {need} pages ({need * page_bytes} bytes); raise num_pages or kv_cache_memory_bytes, or set "
            f"max_model_len to at most {fits}",
            param="max_model_len",
        )
    return EngineSizes(
        page_size=groups.page_size,
        max_model_len=min(wanted_len, fits),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_tokens,
        max_chunk_tokens=chunk,
        num_pages=num_pages,
        num_host_pages=num_host_pages(config, page_bytes),
    )


def narrowed(config: EngineConfig, sizes: EngineSizes, groups: KVGroups, memory: MemoryBudget) -> EngineConfig | None:
    """Options of the next smaller engine where memory is scarce: half the sequences at once, then half the page.

    config: the user's options; sizes: those that they, or an earlier result of this function, lead to. None where the
    pool is large enough, where memory does not decide its size, or where no size was left open.
    """
    sequence_pages = groups.max_sequence_pages(sizes.max_model_len, sizes.max_chunk_tokens)
    most_pages = 1 + sizes.max_num_seqs * (sequence_pages + policy_pages(config, groups))
    if not is_sized_by_memory(config, memory) or sizes.num_pages >= most_pages:
        return None
    row_pages = (sizes.num_pages - 1) / (sizes.max_num_seqs * groups.num_groups)
    if row_pages * sizes.page_size < MIN_ROW_TOKENS and may_have_fewer_rows(config, sizes.max_num_seqs):
        return replace(config, max_num_seqs=sizes.max_num_seqs // 2, page_size=sizes.page_size)
    is_open = config.page_size is None and config.kv_layout != "lanes"
    if row_pages < MIN_ROW_PAGES and is_open and sizes.page_size > MIN_PAGE_SIZE:
        return replace(config, max_num_seqs=sizes.max_num_seqs, page_size=sizes.page_size // 2)
    return None


def may_have_fewer_rows(config: EngineConfig, num_rows: int) -> bool:
    """Whether half of `num_rows` sequences at once may do: the user left the number open, and it is not small."""
    return config.max_num_seqs is None and num_rows > MIN_ROWS


def context_len(config: EngineConfig, max_position: int) -> int:
    """The context that is asked for, or the model's own; raises ConfigError where it is longer than that."""
    wanted_len = config.max_model_len or max_position
    if wanted_len > max_position:
        raise ConfigError(
            f"max_model_len={wanted_len} is more than the model's context of {max_position} tokens",
            param="max_model_len",
        )
    return wanted_len


def page_size(config: EngineConfig, platform: str) -> int:
    """KV positions in a page."""
    default = 16 if platform == "cpu" else 64
    return config.page_size or (LANES_PAGE_MULTIPLE if config.kv_layout == "lanes" else default)


def max_rows_and_tokens(config: EngineConfig, platform: str) -> tuple[int, int]:
    """(max_num_seqs, max_num_batched_tokens); a CPU has far less arithmetic to fill a step with."""
    default_rows, default_tokens = (32, 512) if platform == "cpu" else (256, 2048)
    rows = config.max_num_seqs or min(default_rows, config.max_num_batched_tokens or default_rows)
    tokens = config.max_num_batched_tokens or max(default_tokens, rows)
    check_token_budget(rows, tokens)
    return rows, tokens
