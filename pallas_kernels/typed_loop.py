"""Device: `fori_loop` with the types that JAX does not declare."""

from collections.abc import Callable
from typing import Any

import jax


def fori_loop[T](lower: Any, upper: Any, body: Callable[[jax.Array, T], T], init: T) -> T:
    """`jax.lax.fori_loop`; the bounds may be traced."""
    return jax.lax.fori_loop(lower, upper, body, init)  # pyright: ignore[reportUnknownVariableType]
