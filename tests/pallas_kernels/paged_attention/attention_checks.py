"""One check for all back ends: a workload's outputs against the float64 reference, and the pool number for number."""

from functools import cache

import numpy as np

from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.paged_attention.workload_arguments import build
from pallas_kernels.paged_attention.workloads import Workload
from tests.pallas_kernels.paged_attention.attention_calls import Result, attend, truth
from tests.pallas_kernels.paged_attention.error_bounds import BOUNDS, are_same_pools, errors


@cache
def expected_of(workload: Workload) -> Result:
    return truth(build(workload))


def check(workload: Workload, backend: str, block: BlockSizes | None = None) -> None:
    got = attend(build(workload), backend=backend, block=block, compile_fast=True)
    expected = expected_of(workload)
    assert errors(got.o, expected.o).max() <= BOUNDS[workload.dtype]
    assert are_same_pools(got.pool, expected.pool)
    num_tokens = sum(workload.q_lens)
    assert np.abs(expected.o[:num_tokens]).max() > 0.1
    assert not expected.o[num_tokens:].any(), "padding tokens give zeros"
