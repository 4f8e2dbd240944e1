"""Host: sizes left open become smaller where memory is scarce: first fewer sequences at once, then smaller pages."""

from dataclasses import replace

from jaxserve.core.kv_groups import KVGroups
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.memory_plan import EngineSizes, MemoryBudget, is_sized_by_memory, max_sequence_pages

MIN_ROWS, MIN_PAGE_SIZE = 8, 16
MIN_ROW_TOKENS = 256  # of the pool for each sequence; with fewer, sequences would mostly preempt one another
MIN_ROW_PAGES = 8  # the last page of a sequence is half empty on average: a sixteenth of so many


def narrowed(config: EngineConfig, limits: EngineSizes, groups: KVGroups, memory: MemoryBudget) -> EngineConfig | None:
    """The next smaller engine: half the sequences or half the page.

    config: as the user gave it; limits: what came of it, or of what this function returned before. None where the pool
    is large enough, where memory does not decide how large it is, or where no size was left open.
    """
    most_pages = 1 + limits.max_num_seqs * max_sequence_pages(groups, limits.max_model_len, limits.max_chunk_tokens)
    if not is_sized_by_memory(config, memory) or limits.num_pages >= most_pages:
        return None
    row_pages = (limits.num_pages - 1) / (limits.max_num_seqs * groups.num_groups)
    if row_pages * limits.page_size < MIN_ROW_TOKENS and may_have_fewer_rows(config, limits.max_num_seqs):
        return replace(config, max_num_seqs=limits.max_num_seqs // 2, page_size=limits.page_size)
    is_open = config.page_size is None and config.kv_layout != "lanes"
    if row_pages < MIN_ROW_PAGES and is_open and limits.page_size > MIN_PAGE_SIZE:
        return replace(config, max_num_seqs=limits.max_num_seqs, page_size=limits.page_size // 2)
    return None


def may_have_fewer_rows(config: EngineConfig, num_rows: int) -> bool:
    return config.max_num_seqs is None and num_rows > MIN_ROWS
