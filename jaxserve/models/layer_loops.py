"""Device: loops over a layer table: the rows that each loop runs, how many in a turn, and what these hold."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Int

from jaxserve.models.config.model_config import Layer

MAX_TURN = 8  # layers that one turn of a loop runs at most, each of which is compiled
MAX_COMPILED = 16
"""Layers that are compiled in all loops on a GPU: about as many as in a loop with turns of 8, and 7 layers after it."""
Row = list[jax.Array]
"""Of a layer table: a number for each of its fields."""


class Loop(NamedTuple):
    """Rows [begin, end) of a layer table. turn: the stacks of the layers that a turn runs, at the end perhaps only the
    first of them; None: a turn runs one layer, whose stack a condition selects."""

    begin: int
    end: int
    turn: tuple[int, ...] | None


def layer_loops(layers: tuple[Layer, ...], table: tuple[Layer, ...], platform: str) -> list[Loop]:
    """The loops that run a table, in order. layers: the model's.

    A condition is less to compile; but on a GPU the host would wait for each, and the layer's weights would be copied
    for it (jaxlib 0.11.2). There each loop has the layers' kinds in an order that repeats. It also ends where layers
    are left out, as drafts of the model itself leave them: XLA reads a layer's weights in place only if its index grows
    evenly from turn to turn (4 copies a layer otherwise, jaxlib 0.11.2).
    """
    stacks = tuple(row.stack for row in table)
    if platform != "gpu":
        return [Loop(0, len(table), stacks[:1] if len(set(stacks)) == 1 else None)]
    number = {(row.stack, row.index_in_stack): i for i, row in enumerate(layers)}
    numbers = [number[row.stack, row.index_in_stack] for row in table]
    gaps = [i for i, (one, other) in enumerate(pairwise(numbers), 1) if other != one + 1]
    return [
        Loop(begin + loop.begin, begin + loop.end, loop.turn)
        for begin, end in pairwise([0, *gaps, len(table)])
        for loop in repeating_loops(stacks[begin:end]) or [Loop(0, end - begin, None)]
    ]


@cache
def repeating_loops(stacks: tuple[int, ...]) -> tuple[Loop, ...]:
    """Loops over layers of these stacks, each with a turn: one where their order repeats from the first to the last,
    otherwise those in which the fewest layers are compiled. Empty where these are too many.

    Files of Q4_K_M need three: the first eighth and the last of the layers have more bits, and every third of the rest.
    """
    if turn := _turn(stacks):
        return (Loop(0, len(stacks), turn),)
    # The best loops over the first layers, by their number: layers that are compiled, and the loops.
    best: list[tuple[int, tuple[Loop, ...]]] = [(0, ())]
    for end in range(1, len(stacks) + 1):
        ways = list[tuple[int, tuple[Loop, ...]]]()
        for begin in range(end):
            if turn := _turn(stacks[begin:end]):
                num_compiled, loops = best[begin]
                num_rest = (end - begin) % len(turn)
                ways.append((num_compiled + len(turn) + num_rest, (*loops, Loop(begin, end, turn))))
        best.append(min(ways, key=lambda way: (way[0], len(way[1]))))
    num_compiled, loops = best[-1]
    return loops if num_compiled <= MAX_COMPILED else ()


def _turn(stacks: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shortest order of stacks that repeats; None: it would have more than MAX_TURN layers."""
    for size in range(1, min(MAX_TURN, len(stacks)) + 1):
        if all(stack == stacks[i % size] for i, stack in enumerate(stacks)):
            return stacks[:size]
    return None


def layer_rows(table: tuple[Layer, ...], tap_layers: tuple[int, ...] = ()) -> Int[np.ndarray, "L 5"]:
    """A layer table as an array: stack, index in stack, group, index in group, tap index (past the last: no tap)."""
    rows = [
        (
            row.stack,
            row.index_in_stack,
            row.group,
            row.index_in_group,
            tap_layers.index(i) if i in tap_layers else len(tap_layers),
        )
        for i, row in enumerate(table)
    ]
    return np.array(rows, np.int32)


def run_in_turns[Carry](
    run: Callable[[Carry, list[Row]], Carry], carry: Carry, rows: Int[np.ndarray, "L fields"], size: int
) -> Carry:
    """`run(carry, rows of a turn)` in a loop over turns of `size` rows, and after it with the rows that are left.

    A field that grows evenly is computed from the number of the turn, not read from a table: on a GPU kernels then take
    it from the loop's own counter. Reading it took two of 17 operations a layer of Llama 3 8B.
    """
    num_turns = len(rows) // size
    turns, rest = rows[: num_turns * size].reshape(num_turns, size, rows.shape[1]), rows[num_turns * size :]
    if num_turns:
        steps = np.diff(turns, axis=0)
        first, step = turns[0], steps[0] if num_turns > 1 else np.zeros_like(turns[0])
        is_even, table = np.all(steps == step, axis=0), jnp.asarray(turns)

        def field(number: jax.Array, row: int, i: int) -> jax.Array:
            if not is_even[row, i]:
                return table[number, row, i]
            start = jnp.int32(first[row, i])
            return start + number * int(step[row, i]) if step[row, i] else start

        def run_turn(number: jax.Array | int, carry: Carry) -> Carry:
            at = jnp.asarray(number, jnp.int32)
            return run(carry, [[field(at, row, i) for i in range(rows.shape[1])] for row in range(size)])

        carry = lax.fori_loop(0, num_turns, run_turn, carry)
    return run(carry, [[jnp.int32(number) for number in row] for row in rest])
