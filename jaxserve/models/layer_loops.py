"""Device: loops over a layer table: the rows that one loop runs, how many in a turn, and what these hold."""

from collections.abc import Callable
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Int

from jaxserve.models.config.model_config import Layer

MAX_TURN = 8  # layers that one turn of the loop runs at most, each of which is compiled
Row = list[jax.Array]
"""Of a layer table: a number for each of its fields."""


def runs_of_layers(layers: tuple[Layer, ...], table: tuple[Layer, ...], platform: str) -> list[tuple[int, int]]:
    """Rows of a table that one loop runs, from the first up to the second: all, but for a GPU. layers: the model's.

    On a GPU a loop ends where layers are left out, as drafts of the model itself leave them: XLA reads a layer's
    weights in place only if its index grows evenly from turn to turn (4 copies a layer otherwise, jaxlib 0.11.2).
    """
    number = {(row.stack, row.index_in_stack): i for i, row in enumerate(layers)}
    numbers = [number[row.stack, row.index_in_stack] for row in table]
    gaps = [i for i, (one, other) in enumerate(pairwise(numbers), 1) if platform == "gpu" and other != one + 1]
    return list(pairwise([0, *gaps, len(table)]))


def stacks_of_turn(layer_stacks: tuple[int, ...], platform: str) -> tuple[int, ...] | None:
    """The stacks of the layers that a turn of the loop over all layers runs: of as many as repeat in the model.

    None: a turn runs one layer, whose stack a condition selects. That is less to compile; but on a GPU the host would
    wait for each condition, and the layer's weights would be copied for it (jaxlib 0.11.2).
    """
    if len(set(layer_stacks)) > 1 and platform != "gpu":
        return None
    for size in range(1, MAX_TURN + 1):
        if all(stack == layer_stacks[i % size] for i, stack in enumerate(layer_stacks)):
            return layer_stacks[:size]
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
