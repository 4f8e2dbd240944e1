"""Host: `EngineInfo`: what does not change while an engine serves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxserve.scheduler.scheduler import Scheduler
from jaxserve.text.chat_template import ChatTemplate


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """max_model_len: tokens of a prompt and its output together. page_size: positions of a KV page. num_pages: of the
    pool, all groups together, without the scratch page. max_concurrency: sequences of max_model_len that the pool holds
    at once. generation_config: sampling defaults that come with the model."""

    max_model_len: int
    vocab_size: int
    max_num_seqs: int
    page_size: int
    num_pages: int
    max_concurrency: float
    has_prefix_cache: bool
    chat_template: ChatTemplate
    generation_config: Mapping[str, Any]


def engine_info(scheduler: Scheduler, chat_template: ChatTemplate, generation_config: Mapping[str, Any]) -> EngineInfo:
    """Of the engine that `scheduler` is part of."""
    state, limits = scheduler.state, scheduler.state.limits
    num_pages = state.pool.num_pages - 1
    sequence_pages = state.groups.max_sequence_pages(limits.max_model_len, limits.max_chunk_tokens)
    return EngineInfo(
        max_model_len=limits.max_model_len,
        vocab_size=limits.vocab_size,
        max_num_seqs=limits.max_num_seqs,
        page_size=state.groups.page_size,
        num_pages=num_pages,
        max_concurrency=num_pages / sequence_pages,
        has_prefix_cache=state.prefix_cache is not None,
        chat_template=chat_template,
        generation_config=generation_config,
    )
