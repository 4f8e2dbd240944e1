"""The time model counts each block of positions as the kernels process it."""

from dataclasses import replace

import pytest

from scripts.benchmarks.kernels.bundle_model import call_bundles, tile_positions
from scripts.benchmarks.kernels.inner_loops import Inner
from scripts.benchmarks.kernels.tpu_schedule import Kernel, Loop
from scripts.benchmarks.kernels.workload_names import KNOWN

ROW = Loop("1", 200, 0, 0, {"MXU": 0}, {})
COMPUTE = Loop("1.1", 800, 0, 0, {"MXU": 256}, {"hbm_to_vmem": (8, 2**21)})
EDGE = Loop("1.2", 600, 0, 0, {"MXU": 128}, {})
MASKED = Inner(Kernel("k", (ROW, COMPUTE), {}, 0, 0, ()), COMPUTE, COMPUTE, None, 512, 512, 8, 8, None)
SPLIT = replace(MASKED, edge=EDGE)


def test_an_edge_costs_its_own_loops_bundles():
    """600 bundles for half the matrix work, against 800 for all of it."""
    assert SPLIT.edge_cost == 1.5
    assert MASKED.edge_cost == 1


@pytest.mark.parametrize(
    ("first", "last", "window", "expected"),
    [
        (99, 99, None, (0, 128, 1)),
        (511, 511, None, (0, 512, 1)),
        (512, 512, None, (512, 128, 2)),
        (8191, 8191, None, (15 * 512, 512, 16)),
        (8191, 8191, 1024, (0, 512 + 512, 2)),
        (8000, 8000, 1024, (512, 256 + 384, 3)),
        (0, 63, None, (0, 128, 1)),
        (1984, 2047, None, (3 * 512, 512, 4)),
        (2047, 2110, None, (4 * 512, 128, 5)),
    ],
)
def test_positions_of_a_tile(first, last, window, expected):
    assert tile_positions(SPLIT, first, last, window) == expected


@pytest.mark.parametrize("window", [None, 100, 1024])
@pytest.mark.parametrize("num_queries", [1, 16, 700])
def test_no_visible_position_is_left_out(window, num_queries):
    for first in range(0, 3000, 37):
        last = first + num_queries - 1
        begin = 0 if window is None else max(first - window + 1, 0)
        for inner in (SPLIT, MASKED):
            whole, edge, blocks = tile_positions(inner, first, last, window)
            assert last + 1 - begin <= whole + edge <= blocks * 512 + 128
            assert blocks == last // 512 - begin // 512 + 1


def test_a_call_is_the_sum_of_its_rows():
    """64 rows of 8192: 15 whole blocks, a masked one at 1.5 times the price, and 200 around them."""
    w = KNOWN["llama3_8b_decode_64x8k"]
    assert call_bundles(SPLIT, w, 1) == 64 * (15 * 800 + 1.5 * 800 + 200)
    assert call_bundles(MASKED, w, 1) == 64 * (16 * 800 + 200)
