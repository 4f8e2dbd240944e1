"""Rows of few tokens, read together: the same as the reference, for chains and trees, with windows and 8-bit pools."""

from dataclasses import replace

import numpy as np
import pytest

from pallas_kernels.paged_attention.workload_arguments import build
from pallas_kernels.paged_attention.workloads import Workload
from tests.pallas_kernels.paged_attention.attention_calls import attend
from tests.pallas_kernels.paged_attention.attention_checks import expected_of
from tests.pallas_kernels.paged_attention.error_bounds import BOUNDS, are_same_pools, errors

CHAINS = Workload(
    "short rows", (1, 1, 4, 2, 3, 4, 1), (1, 60, 4, 33, 90, 17, 40), 6, 2, 16, num_chunk_rows=7, padding_tokens=5
)
CASES = {
    "chains": CHAINS,
    "trees": replace(CHAINS, tree_words=1),
    "window": replace(CHAINS, window=21, tree_words=1),
    "8 bits, sinks": replace(CHAINS, pool_dtype="int8", has_sinks=True, softcap=5.0),
    "padding rows": replace(CHAINS, padding_rows=6, padding_columns=2),
    "lanes": replace(CHAINS, layout="lanes", page_size=128),
}


@pytest.mark.parametrize("name", CASES)
def test_short_rows_equal_the_reference(name):
    workload = CASES[name]
    got = attend(build(workload), backend="xla", max_query_len=4, compile_fast=True)
    expected = expected_of(workload)
    assert errors(got.o, expected.o).max() <= BOUNDS[workload.dtype]
    assert are_same_pools(got.pool, expected.pool)
    assert not got.o[sum(workload.q_lens) :].any()


def test_a_row_that_is_longer_than_promised_is_cut():
    """Control: the promise is used."""
    got = attend(build(CHAINS), backend="xla", max_query_len=2, compile_fast=True)
    wrong = np.flatnonzero(np.abs(got.o - expected_of(CHAINS).o).max((1, 2)) > 1e-3)
    assert wrong.tolist() == [4, 5, 10, 13, 14]
