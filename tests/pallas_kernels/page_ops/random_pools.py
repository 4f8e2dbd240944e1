"""Pools of arbitrary bits, moves within them, and batches of rows that write into them."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

DEFAULT_EMITTERS = {"xla_backend_extra_options": ""}
"""Compiler options for programs that must keep every bit: the emitters that tests/conftest.py selects flush denormal
numbers of bfloat16, XLA's default ones do not."""


def random_bits(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> jax.Array:
    """Any pattern, NaNs too; but in float8_e5m2 only that one into which XLA on CPU turns all NaNs that it moves."""
    size = jnp.dtype(dtype).itemsize
    numbers = rng.integers(0, 256, (*shape, size), np.uint8).view(dtype)[..., 0]
    if dtype == "float8_e5m2":
        numbers = np.where(np.isnan(numbers), np.uint8(0x7F).view(dtype), numbers)
    return jnp.asarray(numbers)


def bits(array: jax.typing.ArrayLike) -> np.ndarray:
    array = np.asarray(array)
    return array.view(f"uint{8 * array.dtype.itemsize}")


def moves(size: int, first: int, count: int) -> st.SearchStrategy:
    """Pairs padded to count with destinations before `first` (scratch); sources may be destinations of other pairs."""
    pairs = st.lists(
        st.tuples(st.integers(0, size - 1), st.integers(first, size - 1)), max_size=count, unique_by=lambda p: p[1]
    )
    return pairs.map(lambda pairs: np.array(pairs + [(0, 0)] * (count - len(pairs)), np.int32).T)


@dataclass(frozen=True)
class Rows:
    """Sequences that write `lens` tokens each, from these offsets of their first pages on; then padding tokens."""

    lens: list[int]
    offsets: list[int]
    pages: list[int]
    begin: int
    end: int

    def slots(self, num_tokens: int, page_size: int, reverse_pages: bool = False) -> np.ndarray:
        """`reverse_pages`: the same rows in another KV group, which has other pages."""
        free = iter(self.pages[::-1] if reverse_pages else self.pages)
        slots = []
        for length, offset in zip(self.lens, self.offsets, strict=True):
            position = offset + np.arange(length)
            own = np.array([next(free) for _ in range(position[-1] // page_size + 1)])
            slots += list(own[position // page_size] * page_size + position % page_size)
        padding = np.arange(num_tokens - len(slots)) % page_size
        return np.concatenate([slots, padding]).astype(np.int32)


@st.composite
def batches(draw, num_tokens: int, page_size: int, num_pages: int) -> Rows:
    lens = draw(st.lists(st.one_of(st.just(1), st.integers(1, num_tokens)), max_size=6))
    while sum(lens) > num_tokens:
        lens.pop()
    ends = st.integers(0, sum(lens))
    begin, end = sorted((draw(ends), draw(st.one_of(st.just(sum(lens)), ends))))
    return Rows(
        lens,
        [draw(st.integers(0, page_size - 1)) for _ in lens],
        draw(st.permutations(range(1, num_pages))),
        begin,
        end,
    )
