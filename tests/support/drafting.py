"""Engines whose rows draft whenever they may, and what their drafts came to."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from jaxserve import LLM
from jaxserve.scheduler.speculation import Speculation


class AlwaysDraft(Speculation):
    """Does not weigh times, which differ from run to run."""

    def drafts_of(self, slot_table, slots, decode, verify) -> np.ndarray:
        return np.where(slot_table.may_draft[slots], self.max_drafts, 0).astype(np.int32)


def always(llm: LLM) -> LLM:
    """The engine, which drafts from now on in every step that has verify buckets."""
    sizes, config = llm.parts.spec.sizes, llm.config.speculation
    assert config is not None
    llm.parts.engine.scheduler.state.speculation = AlwaysDraft(config.num_speculative_tokens, sizes.max_num_seqs)
    return llm


@contextmanager
def counted(llm: LLM) -> Iterator[list[tuple[int, int]]]:
    """Yields the numbers of proposed and accepted drafts of each step."""
    seen: list[tuple[int, int]] = []
    runner = llm.parts.runner
    collect = runner.collect

    def collect_and_count(ticket):
        outcome = collect(ticket)
        if outcome.drafts is not None:
            seen.append((int(outcome.drafts.num_proposed.sum()), int(outcome.drafts.num_accepted.sum())))
        return outcome

    with patch.object(runner, "collect", collect_and_count):
        yield seen
