"""Engines over the tiny checkpoints, built once for each set of options; one decode and one mixed bucket each."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from jaxserve import LLM, SamplingParams
from jaxserve.core.sequence import Sequence
from tests.support.goldens import checkpoint

SMALL: dict[str, Any] = {
    "dtype": "float32",
    "max_model_len": 128,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 32,
    "num_pages": 300,
}


@cache
def _engine(family: str, options: tuple[tuple[str, Any], ...]) -> LLM:
    return LLM(str(checkpoint(family)), **dict(options))


def tiny_engine(family: str, **options: Any) -> LLM:
    return _engine(family, tuple(sorted({**SMALL, **options}.items())))


def forget_engines() -> None:
    """The next call of `tiny_engine` builds anew; memory of engines that nobody else holds is given back."""
    _engine.cache_clear()


class FixedRounds:
    """Instead of a `RoundBudget`: always as many."""

    def __init__(self, num_rounds: int):
        self.num_rounds = num_rounds

    def observe(self, num_rounds: int, submitted_s: float, collected_s: float) -> None:
        pass


@contextmanager
def driven(llm: LLM, num_rounds: int, is_overlapped: bool) -> Iterator[list[int]]:
    """An engine whose steps have up to `num_rounds` rounds, overlapped or not; yields the rounds of each plan."""
    engine, runner = llm.parts.engine, llm.parts.runner
    before, submit, planned = (engine.rounds, engine.is_overlapped), runner.submit, []
    engine.rounds, engine.is_overlapped = FixedRounds(num_rounds), is_overlapped
    runner.submit = lambda plan: planned.append(plan.num_rounds) or submit(plan)
    try:
        yield planned
    finally:
        (engine.rounds, engine.is_overlapped), runner.submit = before, submit


def submit(llm: LLM, prompt: list[int], params: SamplingParams, **changes: Any) -> Sequence:
    """Queue one request by hand, fields of it replaced by `changes`; returns its first sample."""
    request = replace(llm.parts.requests.make(prompt, params), **changes)
    llm.parts.requests.count(1)
    return llm.parts.engine.add(request)[0]


def drain(llm: LLM) -> None:
    """Step until nothing is left to do."""
    for _ in llm.parts.engine.drain():
        pass
