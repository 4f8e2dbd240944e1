"""Host: transforms of rows between file and tree, each with its inverse."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Transform(Protocol):
    """A function of rows `[R, ...]`, where R is a multiple of `align_rows`: tensors are transformed piece by piece."""

    @property
    def align_rows(self) -> int: ...

    def __call__(self, rows: np.ndarray) -> np.ndarray: ...

    def inverse(self, rows: np.ndarray) -> np.ndarray:
        """From the tree back to the file."""
        ...


@dataclass(frozen=True)
class Keep:
    """The identity."""

    align_rows: int = 1

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        return rows

    def inverse(self, rows: np.ndarray) -> np.ndarray:
        return rows


@dataclass(frozen=True)
class AddOne:
    """w → 1 + w in float32: Gemma's norms multiply by 1 + w, which bfloat16 cannot represent."""

    align_rows: int = 1

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        return rows.astype(np.float32) + np.float32(1)

    def inverse(self, rows: np.ndarray) -> np.ndarray:
        return rows.astype(np.float32) - np.float32(1)


@dataclass(frozen=True)
class SplitHalves:
    """Rows of each head from interleaved order (pairs 2i, 2i+1 rotate together) to half-split order (i, i + H/2).

    Llama-architecture GGUF files store the query and key projections interleaved; the tree, like Hugging Face files, is
    half-split.
    """

    head_dim: int

    @property
    def align_rows(self) -> int:
        return self.head_dim

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        pairs = rows.reshape(-1, self.head_dim // 2, 2, *rows.shape[1:])
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)

    def inverse(self, rows: np.ndarray) -> np.ndarray:
        halves = rows.reshape(-1, 2, self.head_dim // 2, *rows.shape[1:])
        return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)


keep = Keep()
add_one = AddOne()
