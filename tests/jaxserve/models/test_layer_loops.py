import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.models.layer_loops import MAX_COMPILED, layer_loops, repeating_loops, run_in_turns
from tests.support.compiled.more_bits import have_more_bits

EVEN = [[3, 2 * i, i, 7 - i] for i in range(7)]
UNEVEN = [[3, i * i, i, 5 * i % 3] for i in range(7)]


GEMMA = SHAPES["gemma-3-1b"]


def q4_k_m(num_layers):
    """The stacks of a file's layers: 1 has more bits."""
    return tuple(map(int, have_more_bits(num_layers)))


@pytest.mark.parametrize(
    ("stacks", "loops"),
    [
        ((0,) * 30, [(0, 30, (0,))]),
        ((0, 1) * 13, [(0, 26, (0, 1))]),
        (GEMMA.layer_stacks, [(0, 26, (0, 0, 0, 0, 0, 1))]),  # the last turn has two
        ((1,) * 20 + (0,) * 8, [(0, 20, (1,)), (20, 28, (0,))]),
        (q4_k_m(32), [(0, 3, (1,)), (3, 27, (1, 0, 0)), (27, 32, (1,))]),
        (q4_k_m(80), [(0, 9, (1,)), (9, 69, (1, 0, 0)), (69, 80, (1,))]),
        (q4_k_m(28), [(0, 2, (1,)), (2, 23, (1, 0, 0)), (23, 28, (1,))]),
        ((0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 1), [(0, 9, (0, 1, 2, 3)), (9, 11, (1,))]),
        (tuple(np.random.default_rng(0).integers(0, 4, 60).tolist()), []),
    ],
)
def test_loops_run_as_many_layers_in_a_turn_as_repeat(stacks, loops):
    assert list(repeating_loops(stacks)) == loops
    compiled = sum(len(turn) + (end - begin) % len(turn) for begin, end, turn in loops)
    assert compiled <= MAX_COMPILED
    run = [turn[i % len(turn)] for begin, end, turn in loops for i in range(end - begin)]
    assert run == list(stacks if loops else [])


def test_a_loop_on_a_gpu_ends_where_layers_are_left_out():
    layers = GEMMA.layer_table
    table = tuple(row for i, row in enumerate(layers) if i not in (0, 5, 6, 25))
    assert layer_loops(layers, table, "gpu") == [(0, 4, (0,)), (4, 22, (0, 0, 0, 0, 1, 0))]
    assert layer_loops(layers, table, "tpu") == [(0, 22, None)]
    assert layer_loops(layers, layers, "gpu") == [(0, 26, (0, 0, 0, 0, 0, 1))]
    assert layer_loops(layers, layers[:5], "tpu") == [(0, 5, (0,))]


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
