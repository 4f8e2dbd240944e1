"""Upper bounds of the bundles of the inner loops in libtpu's schedule for a v6e."""

import pytest

from scripts.benchmarks.kernels.static_figures import figures
from scripts.benchmarks.kernels.workload_names import workloads
from tests.support.compiled.aot import tpu_mesh

# docs/benchmarks/kernels.md has what is reached; these are promises.
MAX_BUNDLES = {
    "llama3_8b_decode_64x2k@64": 1110,
    "llama3_8b_decode_64x2k@128": 1075,
    "smollm2_decode_128x1k@64": 1340,
}
RPA_MXU_SHARE = 0.547


@pytest.mark.thinned(1)
@pytest.mark.parametrize("name", MAX_BUNDLES)
def test_aot_decode_stays_below_its_bound(name):
    tpu_mesh("v6e:2x2")  # skips where libtpu is missing
    (w,) = workloads([name])
    counted = figures(w, "v6e")
    assert counted.bundles <= MAX_BUNDLES[name]
    assert counted.inner.positions % w.page_size == 0


@pytest.mark.thorough
def test_aot_prefill_keeps_the_matrix_units_as_busy_as_rpa_does():
    tpu_mesh("v6e:2x2")
    (w,) = workloads(["llama3_8b_chunk_2k_of_8k"])
    assert figures(w, "v6e").mxu_share >= RPA_MXU_SHARE
