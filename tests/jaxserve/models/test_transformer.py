import pytest

from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.models.transformer import kinds_of_turn


@pytest.mark.parametrize(
    ("layer_kinds", "on_gpu"),
    [
        ((0,) * 30, (0,)),
        ((0, 1) * 13, (0, 1)),
        (SHAPES["gemma-3-1b"].layer_kinds, (0, 0, 0, 0, 0, 1)),  # 26 layers: the last turn has two
        ((1,) * 20 + (0,) * 8, None),  # one turn would run all layers
    ],
)
def test_a_turn_runs_as_many_layers_as_repeat(layer_kinds, on_gpu):
    assert kinds_of_turn(layer_kinds, "gpu") == on_gpu
    assert kinds_of_turn(layer_kinds, "tpu") == (on_gpu if len(set(layer_kinds)) == 1 else None)
