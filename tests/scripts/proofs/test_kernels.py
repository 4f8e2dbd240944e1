"""Stored rows of the proof belong to the files that their back end is computed by."""

import pytest

from scripts.proofs.kernels import BACKENDS, ROOT, sources_of

ATTENTION = "pallas_kernels/paged_attention"
OWN = {
    "mosaic_tpu": f"{ATTENTION}/mosaic_tpu/decode_kernel.py",
    "mosaic_gpu": f"{ATTENTION}/mosaic_gpu/kernel.py",
    "xla": f"{ATTENTION}/xla/backend.py",
    "invariant": f"{ATTENTION}/xla/batch_invariant.py",
}


def sources(backend: str) -> set[str]:
    return {file.relative_to(ROOT).as_posix() for file in sources_of(backend)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_back_ends_files_are_among_its_sources(backend):
    found = sources(backend)
    assert OWN[backend] in found
    assert f"{ATTENTION}/workloads.py" in found
    assert not any("/test_" in name for name in found)


def test_a_change_of_one_back_end_keeps_the_rows_of_others():
    assert OWN["mosaic_tpu"] not in sources("mosaic_gpu") | sources("xla") | sources("invariant")
    assert OWN["xla"] not in sources("mosaic_tpu")
