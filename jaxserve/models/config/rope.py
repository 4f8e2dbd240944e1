"""Host: `Rope`, the parameters of rotary embedding."""

import math
from dataclasses import dataclass, replace

from jaxserve.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class LongRope:
    """The second table of factors (LongRoPE, arXiv 2402.13753), for contexts of more than `original_len` tokens."""

    factors: tuple[float, ...]
    original_len: int


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding (RoFormer, arXiv 2104.09864), first half of the values with the second.

    The first `dim` values of a head are rotated (None: all H). `factors`, one for each of the dim/2 frequencies, divide
    the frequencies `base ** (-2i / dim)`; `attention_factor` multiplies cosines and sines. If `long` is set, the table
    of factors depends on the context: `for_context` selects it.
    """

    base: float
    factors: tuple[float, ...] | None = None
    attention_factor: float = 1.0
    dim: int | None = None
    long: LongRope | None = None

    def frequencies(self, head_dim: int) -> list[float]:
        if self.long is not None:
            raise ValueError("this rope has two tables of factors: select one with for_context first")
        dim = self.dim or head_dim
        plain = [self.base ** (-2 * i / dim) for i in range(dim // 2)]
        if self.factors is None:
            return plain
        return [f / factor for f, factor in zip(plain, self.factors, strict=True)]

    def for_context(self, max_len: int) -> "Rope":
        """The rope with one table for all positions of contexts of up to `max_len` tokens.

        Keys in the pool are already rotated when a sequence grows past the limit, so the table cannot change then.
        """
        if self.long is None:
            return self
        return replace(self, factors=self.long.factors if max_len > self.long.original_len else self.factors, long=None)

    def check(self, head_dim: int) -> None:
        """Raise ConfigError unless it can rotate heads of this dimension."""
        dim = head_dim if self.dim is None else self.dim
        if dim % 2 or not 0 < dim <= head_dim:
            raise ConfigError(f"rope rotates {dim} of {head_dim} values of a head: it takes an even number")
        if not 0 < self.attention_factor < math.inf:
            raise ConfigError(f"rope has the attention factor {self.attention_factor}, which must be positive")
        for factors in (self.factors, self.long.factors if self.long else None):
            if factors is not None and not (len(factors) == dim // 2 and all(0 < f < math.inf for f in factors)):
                raise ConfigError(f"rope needs {dim // 2} positive factors, one for each frequency")
