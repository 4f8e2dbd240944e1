"""Lower bounds equal sums done by hand: weights once, the positions a row sees once, the operations of matrices."""

import pytest

from jaxserve.core.hardware.device_specs import DEVICES, DeviceType, device_type
from jaxserve.core.hardware.roofline import LayerCosts, ModelCosts, step_roofline

FULL = LayerCosts(window=None, position_bytes=10, pair_operations=100)
LOCAL = LayerCosts(window=4, position_bytes=1, pair_operations=1000)
COSTS = ModelCosts(weight_bytes=10**6, token_operations=10**4, row_operations=10**5, layers=(FULL, LOCAL))
DEVICE = DeviceType("a", 10**9, 10**8, bfloat16_operations_s=10**7)


def test_a_decode_step_reads_the_weights_once_and_what_each_row_sees():
    roofline = step_roofline(COSTS, num_tokens=3, num_rows=3, context=50, device=DEVICE)
    assert roofline.num_bytes == 10**6 + 3 * (10 * 50 + 1 * 4)
    assert roofline.num_operations == 3 * (10**4 + 10**5 + 100 * 50 + 1000 * 4)
    assert roofline.bandwidth_s == roofline.num_bytes / 10**8
    assert roofline.compute_s == roofline.step_s == roofline.num_operations / 10**7


def test_tokens_of_a_row_see_one_another_and_share_what_was_there_before():
    """Six tokens after four: 5 + 6 + … + 10 positions; with a window of four each sees four, and all together nine."""
    roofline = step_roofline(COSTS, num_tokens=6, num_rows=1, context=10, device=DEVICE)
    assert roofline.num_bytes == 10**6 + 10 * 10 + 1 * 9
    assert roofline.num_operations == 6 * 10**4 + 10**5 + 100 * (5 + 6 + 7 + 8 + 9 + 10) + 1000 * 6 * 4


def test_tokens_that_do_not_divide_evenly_lengthen_some_rows():
    uneven = step_roofline(COSTS, num_tokens=5, num_rows=2, context=50, device=DEVICE)
    two, three = (step_roofline(COSTS, n, 1, 50, DEVICE) for n in (2, 3))
    assert uneven.num_operations == two.num_operations + three.num_operations
    assert uneven.num_bytes == two.num_bytes + three.num_bytes - COSTS.weight_bytes


def test_a_row_has_at_least_its_own_tokens_as_context():
    assert step_roofline(COSTS, 8, 1, 2, DEVICE) == step_roofline(COSTS, 8, 1, 8, DEVICE)


@pytest.mark.parametrize("device", [None, device_type("cpu"), DeviceType("a", 1, None), DeviceType("b", 1, 10**8)])
def test_unknown_rates_give_no_times(device):
    roofline = step_roofline(COSTS, 1, 1, 1, device)
    assert roofline.compute_s is None
    assert roofline.step_s is None
    assert roofline.num_operations


def test_every_accelerator_of_the_table_has_rates():
    """All of them make 30 to 600 bfloat16 operations per byte of memory read."""
    for device in DEVICES:
        assert device.bfloat16_operations_s
        assert device.bandwidth_bytes_s
        assert 30 < device.bfloat16_operations_s / device.bandwidth_bytes_s < 600, device.name
