"""Host: `RequestSpec`: a request drawn from a dataset, whose prompt may still have to be built; `Selection`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxserve.bench.serving.datasets.words import WORDS
from jaxserve.core.errors import RequestError
from jaxserve.engine.inputs.prompt import Prompt

MAX_DEFAULT_PROMPTS = 1000  # without --num-prompts


@dataclass(frozen=True, slots=True)
class Words:
    """A prompt to build: the first `num_tokens` tokens of these words (int[≥ num_tokens], indices into `WORDS`)."""

    indices: np.ndarray
    num_tokens: int


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """One request of a dataset.

    prompt: words to build it from, or the prompt itself. output: number of tokens to generate, or a text with that
    number of tokens. arrival_s: time in a trace, after the first request.
    """

    prompt: Words | Prompt
    output: int | str
    arrival_s: float | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """Which requests a run takes from a dataset.

    count: None for all, up to `MAX_DEFAULT_PROMPTS`. run: 0 is the warm-up.

    The lengths of synthetic prompts depend on the seed, their words also on the run, so no run hits the prefix cache of
    an earlier one.
    """

    count: int | None
    seed: int
    run: int

    def lengths(self) -> np.random.Generator:
        """A generator that is the same in every run."""
        return np.random.default_rng([self.seed, 0])

    def words(self, *of: int) -> np.random.Generator:
        """A generator that differs by run and by `of`."""
        return np.random.default_rng([self.seed, 1, self.run, *of])

    def count_of(self, available: int, where: Path) -> int:
        """The number of requests to take from a file; raises `RequestError` if the file has too few."""
        count = min(available, MAX_DEFAULT_PROMPTS) if self.count is None else self.count
        if not 0 < count <= available:
            raise RequestError(f"{where} has {available} usable requests: lower --num-prompts", "num_prompts")
        return count


Dataset = Callable[[Selection], list[RequestSpec]]


def random_words(rng: np.random.Generator, count: int) -> np.ndarray:
    """int32[count]: indices into `WORDS`."""
    return rng.integers(0, len(WORDS), count, dtype=np.int32)
