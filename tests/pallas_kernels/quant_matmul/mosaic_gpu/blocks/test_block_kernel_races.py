"""Threads and copies of the GPU kernel of packed blocks never race, by the race detector of Pallas' GPU interpreter."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from pallas_kernels.matmul.block_sizes import BlockSizes
from pallas_kernels.quant_matmul.mosaic_gpu.blocks import kernel, kernel_sizes
from tests.pallas_kernels.quant_matmul.block_checks import Case, check
from tests.pallas_kernels.race_findings import is_caught, missing_waits
from tests.pallas_kernels.wgmma_races import races_of_products

PLAIN = Case("plain", "Q4_0", 3, 64, 768, has_bias=True, block=BlockSizes(64, 256, 1))
WIDE = replace(PLAIN, name="two warpgroups", num_columns=128, block=BlockSizes(128, 256, 1))
WHOLE = replace(PLAIN, name="a field that is copied once", form="INT4-g128")
NESTED = replace(PLAIN, name="scales that are codes", form="NF4-g64, 8 of 1536", num_inputs=1536)
SHARED = replace(PLAIN, name="a last step that shares inputs", num_inputs=576)
GATED = replace(PLAIN, name="gate, splits", activation="silu", has_bias=False, block=BlockSizes(64, 256, 2))


@pytest.fixture
def races() -> Iterator[list[Any]]:
    """What was found in each kernel that has begun. Two steps are in shared memory, of three."""
    with patch.object(kernel_sizes, "MAX_DEPTH", 2), races_of_products() as findings:
        yield findings


@pytest.mark.parametrize("case", [PLAIN, WIDE, WHOLE, NESTED, SHARED, GATED], ids=lambda case: case.name)
def test_nothing_meets(races, case):
    check(case)
    assert [found.races_found for found in races] == [False]


@pytest.mark.parametrize(
    ("name", "case"), [("filled", PLAIN), ("freed", PLAIN), ("arrived", WHOLE), ("arrived", NESTED)]
)
def test_a_missing_wait_is_caught(races, name, case):
    """For a step of the ring, for its place to be free, and for what is copied once, values of scales among it."""
    with missing_waits(kernel, name):
        assert is_caught(races, partial(check, case))
