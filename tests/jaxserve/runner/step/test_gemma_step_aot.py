"""The layers of Gemma 3 1B on two chips, compiled by libtpu: two kinds of layers, windows, seven KV groups in one pool.

Bounds are those of one device. `scripts/prove aot` compiles the whole step, and other chips and buckets.
"""

import pytest

from jaxserve.core.buckets import Bucket
from tests.support.compiled.aot import assert_in_place, tpu_mesh
from tests.support.compiled.aot_step import StepCase

DECODE, MIXED = Bucket(64, 64, 128), Bucket(256, 64, 128)
BACKBONE_BYTES = 5 * 10**6


def case(topology: str, bucket: Bucket) -> StepCase:
    return StepCase(tpu_mesh(topology, 2), "gemma-3-1b", bucket)


def check_whole_step(topology: str, bucket: Bucket) -> None:
    """Assert that the state is updated in place and that sampling needs little more than its rows' logits."""
    step = case(topology, bucket)
    max_bytes = 3 * step.logit_share_bytes
    assert_in_place(step.compile(), step.state.kv.pool, donated=step.state, max_temp_bytes=max_bytes)


@pytest.mark.parametrize(("topology", "bucket"), [("v6e:2x2", DECODE)])
def test_the_backbone_needs_little_memory(topology, bucket):
    step = case(topology, bucket)
    compiled = step.compile_backbone()
    assert_in_place(compiled, step.state.kv.pool, max_temp_bytes=BACKBONE_BYTES)
    assert not step.weight_copies(compiled)
