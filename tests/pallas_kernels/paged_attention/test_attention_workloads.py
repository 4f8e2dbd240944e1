"""Every back end equals the reference in float64 on the shapes of real models."""

import pytest

from pallas_kernels.paged_attention.workloads import WORKLOADS
from tests.pallas_kernels.paged_attention.attention_calls import BACKENDS
from tests.pallas_kernels.paged_attention.attention_checks import check

# A kernel takes seconds to compile: XLA's path, which processors run, takes every second one, and all back ends those
# with shapes and blocks that the pairs of features do not have. `scripts/prove kernels` runs all on all.
REPRESENTATIVE = {
    "smollm2_mixed",
    "page_and_block_edges",
    "gemma3_270m_local_decode",
    "phi3_mini_decode_int8",
    "falcon_7b_decode",
}
BY_NAME = {workload.name: workload for workload in WORKLOADS}
OF_XLA = REPRESENTATIVE | set(list(BY_NAME)[::2])
CASES = [(name, backend) for backend in BACKENDS for name in (OF_XLA if backend == "xla" else REPRESENTATIVE)]


@pytest.mark.thinned(5)
@pytest.mark.parametrize(("name", "backend"), sorted(CASES))
def test_shapes_of_real_models_equal_the_reference(name, backend):
    check(BY_NAME[name], backend)
