import pytest

from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.models.transformer import runs_of_layers, stacks_of_turn


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
