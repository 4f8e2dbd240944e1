"""The layers of Gemma 3 1B on two chips, compiled by libtpu: two kinds of layers, windows, seven KV groups in one pool.
Those of Gemma 2 9B on one GPU.

Bounds are those of one device. `scripts/prove aot` compiles the whole step, and other chips and buckets.
"""

import pytest

from jaxserve.core.buckets import Bucket
from tests.support.compiled.aot import assert_in_place, gpu_mesh, tpu_mesh
from tests.support.compiled.aot_step import StepCase

DECODE, MIXED = Bucket(64, 64, 128), Bucket(256, 64, 128)
BACKBONE_BYTES = 5 * 10**6
GPU_BACKBONE_BYTES = 45 * 10**6  # 34 MB of them are cuBLAS's, as in steps of Llama 3 8B
MOST_TRAFFIC_ON_GPU = 1.15
"""Over weights: partial results of attention over 128 pages, with heads of 256, are a tenth."""


def case(topology: str, bucket: Bucket) -> StepCase:
    return StepCase(tpu_mesh(topology, 2), "gemma-3-1b", bucket)


def check_whole_step(topology: str, bucket: Bucket) -> None:
    """Assert that the state is updated in place and that sampling needs little more than its rows' logits."""
    step = case(topology, bucket)
    max_bytes = 3 * step.logit_share_bytes
    assert_in_place(step.compile(), step.state.kv.pool, donated=step.state, max_temp_bytes=max_bytes)


def check_backbone(topology: str, bucket: Bucket) -> None:
    """Assert that the layers update the pool in place and copy no weight, and that decode steps read weights once."""
    step = case(topology, bucket)
    compiled = step.compile_backbone()
    assert_in_place(compiled, step.state.kv.pool, max_temp_bytes=BACKBONE_BYTES)
    assert not step.weight_copies(compiled)
    if bucket == DECODE:
        assert 1 <= step.traffic(compiled, "layers") <= 1.05


@pytest.mark.parametrize("topology", ["v6e:2x2", "tpu7x:2x2x1"])
def test_a_tpu_reads_weights_once(topology):
    check_backbone(topology, DECODE)


def test_a_gpu_reads_weights_once():
    """Gemma 2 9B, whose weights are many times the activations of 64 rows."""
    step = StepCase(gpu_mesh(), "gemma-2-9b", DECODE)
    compiled = step.compile_backbone()
    assert_in_place(compiled, step.state.kv.pool, max_temp_bytes=GPU_BACKBONE_BYTES)
    assert not step.weight_copies(compiled)
    assert 1 <= step.traffic(compiled, "layers") <= MOST_TRAFFIC_ON_GPU
