"""Device: copies kept in flight inside a TPU kernel, so that the latency of each (about a microsecond) is hidden."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

Copies = Callable[[Any], tuple[Any, ...]]


def pipeline(
    num_items: Any,
    depth: int,
    ahead: int,
    *,
    read: Copies = lambda item: (),
    compute: Callable[[Any], None] = lambda item: None,
    write: Copies = lambda item: (),
) -> None:
    """Reads, computes and writes items 0, 1, …, num_items - 1 (a dynamic number) in a ring of `depth` buffers.

    Item i uses buffer i mod depth. Reads start `ahead` items early; a write has the other depth - ahead items' time to
    arrive before its buffer is read into again. With depth 4, ahead 2:

        item      0        1        2        3        4        5
        reads     r0 r1 r2 r3       r4       r5                         r2: while item 0 is computed
        computes        c0       c1       c2       c3 …
        writes            w0───────────╴     w1───────────╴             w0 must be done before r4 starts

    Args:
      ahead: 0 when nothing is read; depth - 1 when nothing is written.
      read, write: give the copies of an item, called once to start them and once more to wait for the same ones.
    """

    def step(item, _):
        @pl.when(item >= depth - ahead)
        def _():
            wait(write(item - (depth - ahead)))

        @pl.when(item + ahead < num_items)
        def _():
            start(read(item + ahead))

        wait(read(item))
        compute(item)
        start(write(item))
        return 0

    lax.fori_loop(0, jnp.minimum(ahead, num_items), lambda item, _: start(read(item)), None)
    lax.fori_loop(0, num_items, step, 0)
    first_unwaited = jnp.maximum(num_items - (depth - ahead), 0)
    lax.fori_loop(first_unwaited, num_items, lambda item, _: wait(write(item)), None)


def start(copies: tuple[Any, ...]) -> None:
    for copy in copies:
        copy.start()


def wait(copies: tuple[Any, ...]) -> None:
    for copy in copies:
        copy.wait()


@dataclass(frozen=True)
class OnlyIf:
    """A copy that neither starts nor is waited for unless the condition holds; it must be the same both times."""

    condition: Any
    copy: Any

    def start(self) -> None:
        pl.when(self.condition)(self.copy.start)

    def wait(self) -> None:
        pl.when(self.condition)(self.copy.wait)
