"""Host: `RequestSpec`, a request as a dataset draws it, before its prompt has been made."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxserve.bench.serving.datasets.words import WORDS
from jaxserve.core.errors import RequestError
from jaxserve.engine.inputs.prompt import Prompt

MAX_DEFAULT_PROMPTS = 1000  # where nobody says how many


@dataclass(frozen=True, slots=True)
class Words:
    """A prompt to be made: `num_tokens` tokens of these words (int[≥ num_tokens], indices into `WORDS`), cut at the
    end."""

    indices: np.ndarray
    num_tokens: int


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """prompt: to be made, or given. output: tokens to generate, or a text of as many. arrival_s: in a trace, after the
    first one."""

    prompt: Words | Prompt
    output: int | str
    arrival_s: float | None = None


@dataclass(frozen=True, slots=True)
class Draw:
    """Which requests of a dataset. count None: all, up to `MAX_DEFAULT_PROMPTS`. run: 0 is the warm-up.

    Where prompts are made up, their lengths depend on the seed, and their words on the run too: none finds in a prefix
    cache what one before it has sent.
    """

    count: int | None
    seed: int
    run: int

    def lengths(self) -> np.random.Generator:
        """The same in every run."""
        return np.random.default_rng([self.seed, 0])

    def words(self, *of: int) -> np.random.Generator:
        """Another one in every run, and `of` every thing."""
        return np.random.default_rng([self.seed, 1, self.run, *of])

    def count_of(self, available: int, where: Path) -> int:
        """How many of those that a file has. Raises `RequestError` if it has too few."""
        count = min(available, MAX_DEFAULT_PROMPTS) if self.count is None else self.count
        if not 0 < count <= available:
            raise RequestError(f"{where} has {available} requests that can be sent: lower --num-prompts", "num_prompts")
        return count


Dataset = Callable[[Draw], list[RequestSpec]]


def random_words(rng: np.random.Generator, count: int) -> np.ndarray:
    """int32[count]"""
    return rng.integers(0, len(WORDS), count, dtype=np.int32)
