import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.models.layer_loops import run_in_turns, runs_of_layers, stacks_of_turn

EVEN = [[3, 2 * i, i, 7 - i] for i in range(7)]
UNEVEN = [[3, i * i, i, 5 * i % 3] for i in range(7)]


@pytest.mark.parametrize(
    ("layer_stacks", "on_gpu"),
    [
        ((0,) * 30, (0,)),
        ((0, 1) * 13, (0, 1)),
        (SHAPES["gemma-3-1b"].layer_stacks, (0, 0, 0, 0, 0, 1)),  # 26 layers: the last turn has two
        ((1,) * 20 + (0,) * 8, None),  # one turn would run all layers
    ],
)
def test_a_turn_runs_as_many_layers_as_repeat(layer_stacks, on_gpu):
    assert stacks_of_turn(layer_stacks, "gpu") == on_gpu
    assert stacks_of_turn(layer_stacks, "tpu") == (on_gpu if len(set(layer_stacks)) == 1 else None)


def test_a_loop_on_a_gpu_ends_where_layers_are_left_out():
    layers = SHAPES["gemma-3-1b"].layer_table
    table = tuple(row for i, row in enumerate(layers) if i not in (0, 5, 6, 25))
    assert runs_of_layers(layers, table, "gpu") == [(0, 4), (4, 22)]
    assert runs_of_layers(layers, table, "tpu") == [(0, 22)]
    assert runs_of_layers(layers, layers, "gpu") == [(0, 26)]


def run_loop(rows, size):
    """A number that depends on every field of every row, and on their order."""

    def run(carry, turn):
        for row in turn:
            for field in row:
                carry = carry * 31 % 9973 + field
        return carry

    return run_in_turns(run, jnp.int32(1), np.array(rows, np.int32), size)


@pytest.mark.parametrize("rows", [EVEN, UNEVEN, EVEN[:1], EVEN[:2]])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_turns_and_the_rest_run_each_row_in_order(rows, size):
    expected = 1
    for number in np.ravel(rows).tolist():
        expected = expected * 31 % 9973 + number
    assert int(run_loop(rows, size)) == expected


@pytest.mark.parametrize(("rows", "reads"), [(EVEN, False), (UNEVEN, True)])
def test_fields_that_grow_evenly_are_read_from_no_table(rows, reads):
    program = str(jax.make_jaxpr(lambda: run_loop(rows, 1))())
    assert any(op in program for op in ("dynamic_slice", "gather")) == reads
