"""Host: `AdapterWeights`: the matrices of an adapter (LoRA, Hu et al., arXiv 2106.09685) in memory."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class LowRank:
    """What an adapter adds to one matrix of the model: b · a. a: float32 [rank, in]. b: float32 [out, rank], the
    adapter's scale multiplied in."""

    a: np.ndarray
    b: np.ndarray

    @property
    def rank(self) -> int:
        return len(self.a)


@dataclass(frozen=True, slots=True, eq=False)
class AdapterWeights:
    """By layer and matrix: "q", "k", "v", "o", "gate", "up" or "down". folder: with the files that were read; of the
    Hugging Face hub it holds one commit."""

    matrices: dict[tuple[int, str], LowRank]
    folder: str | None = None

    @property
    def rank(self) -> int:
        """The highest of its matrices."""
        return max(matrix.rank for matrix in self.matrices.values())
