"""Threads and copies of the GPU kernel of `matmul` never race, by the race detector of Pallas' GPU interpreter, which
finds planted races.

Thread blocks run one after the other, so it cannot see that two store the same tile; then another tile would hold NaN,
as all memory to which nothing has been stored, in the tests of results.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from pallas_kernels.matmul.block_sizes import BlockSizes
from pallas_kernels.matmul.mosaic_gpu import kernel, kernel_sizes
from pallas_kernels.matmul.workloads import Workload, packed
from tests.pallas_kernels.matmul.matmul_checks import check
from tests.pallas_kernels.race_findings import is_caught, missing_waits
from tests.pallas_kernels.wgmma_races import races_of_products

PLAIN = Workload("plain", 3, 128, 192, has_bias=True, has_residual=True)
GATED = replace(PLAIN, name="gated", activation="silu", has_bias=False, has_residual=False)
ONE, TWO = (BlockSizes(64, 64, splits) for splits in (1, 2))


@pytest.fixture
def races() -> Iterator[list[Any]]:
    """What was found in each kernel that has begun. Two steps are in shared memory, of three."""
    with patch.object(kernel_sizes, "MAX_DEPTH", 2), races_of_products() as findings:
        yield findings


@pytest.mark.parametrize(
    ("workload", "block"),
    [(PLAIN, ONE), (GATED, TWO), (packed(PLAIN), ONE), (packed(PLAIN, "w8a8"), TWO)],
    ids=["plain", "gated, splits", "codes, widened in shared memory", "codes of rows, splits"],
)
def test_nothing_meets(races, workload, block):
    check(workload, "mosaic_gpu", block)
    assert [found.races_found for found in races] == [False]


@pytest.mark.parametrize("name", ["filled", "freed"])
def test_a_missing_wait_is_caught(races, name):
    """For a step of the ring, and for its place to be free."""
    with missing_waits(kernel, name):
        assert is_caught(races, partial(check, PLAIN, "mosaic_gpu", ONE))
