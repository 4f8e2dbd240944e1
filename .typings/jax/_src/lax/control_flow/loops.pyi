"""Loops, which JAX does not annotate."""

from collections.abc import Callable
from typing import Any

from jax import Array

def fori_loop[T](
    lower: Any, upper: Any, body_fun: Callable[[Any, T], T], init_val: T, *, unroll: int | bool | None = None
) -> T: ...
def while_loop[T](cond_fun: Callable[[T], Any], body_fun: Callable[[T], T], init_val: T) -> T: ...
def scan[C, Y](
    f: Callable[[C, Any], tuple[C, Y]],
    init: C,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[C, Y]: ...
def map[Y](f: Callable[[Any], Y], xs: Any, *, batch_size: int | None = None) -> Y: ...
def cumsum(operand: Any, axis: int = 0, reverse: bool = False) -> Array: ...
def __getattr__(name: str) -> Any: ...
