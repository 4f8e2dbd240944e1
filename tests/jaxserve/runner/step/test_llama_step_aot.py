"""The layers of Llama 3 8B on four chips, compiled by libtpu: neither the pool nor weights are copied, and weights are
read once.

Bounds are those of one device. `scripts/prove aot` compiles the whole step, and other chips and buckets.
"""

import jax
import pytest
from jax.sharding import Mesh

from jaxserve.core.buckets import Bucket, default_rounds
from jaxserve.runner.programs.data_loops import data_loops
from jaxserve.runner.programs.hlo import read_hlo
from tests.support.compiled.aot import assert_in_place, tpu_mesh
from tests.support.compiled.aot_step import StepCase
from tests.support.compiled.cuda_graphs import assert_no_waits

DECODE, MIXED = Bucket(64, 64, 128), Bucket(256, 64, 128)
VERIFY = Bucket(256, 64, 128, max_drafts=3)
FEW_ROWS = Bucket(32, 8, 128, max_drafts=3)
MOST_TRAFFIC_WITH_DRAFT = {"tpu": 1.07, "gpu": 1.2}
"""On a GPU parts of attention over 128 pages are a tenth: 21 MB in each layer of the target."""
MB = 10**6
BACKBONE_BYTES = {
    "v5e:2x2": 3 * MB,
    "v6e:2x2": 7 * MB,
    "v5p:2x2x1": 14 * MB,
    "tpu7x:2x2x1": 7 * MB,
}
MOST_SHARES = {
    "n-grams or EAGLE-3": 5,
    "Medusa heads, typical acceptance": 4,
    "layers skipped, rejection sampling": 18,
}
"""Of the logits, as temporaries of a step with drafts. Typical acceptance computes the target's laws: 3.6 shares on
tpu7x. Rejection sampling keeps the laws of all drafts, and compares them with the target's: 3 shares on an H200, 7 on
v6e, 18 on tpu7x."""
ACTIVATIONS_IN_MEMORY = "v5p:2x2x1"  # where libtpu keeps activations between products; elsewhere in VMEM


def case(topology: str, bucket: Bucket) -> StepCase:
    return StepCase(tpu_mesh(topology, 4), "llama-3-8b", bucket)


def check_whole_step(topology: str, bucket: Bucket) -> None:
    """Assert that the state is updated in place and that sampling needs little more than its rows' logits."""
    step = case(topology, bucket)
    max_bytes = 3 * step.logit_share_bytes
    assert_in_place(step.compile(), step.state.kv.pool, donated=step.state, max_temp_bytes=max_bytes)


def compile_and_check_loops(step: StepCase, more: int = 0) -> jax.stages.Compiled:
    """The whole step, after asserting that it has one loop over rounds, but on a GPU none, and `more` loops that end by
    data; on a GPU conditions are parts of graphs."""
    platform = step.mesh.devices.flat[0].platform
    if platform == "gpu":
        with assert_no_waits() as options:
            compiled = step.compile(**options)
    else:
        compiled = step.compile()
    assert len(data_loops(read_hlo(compiled.as_text()))) == (default_rounds(platform) > 1) + more
    return compiled


def check_verify_step(mesh: Mesh, drafts: str) -> None:
    """Assert that rows with drafts update the state in place and copy no weight."""
    step = StepCase(mesh, "llama-3-8b", VERIFY, drafts=drafts)
    compiled = compile_and_check_loops(step)
    # A draft has logits of its own.
    num_shares = MOST_SHARES.get(drafts, 4 if step.state.kv.extra else 3)
    max_bytes = num_shares * step.logit_share_bytes
    for array in (step.state.kv.pool, *step.state.kv.extra.values()):
        assert_in_place(compiled, array, donated=step.state, max_temp_bytes=max_bytes)
    assert not step.weight_copies(compiled)


def check_decode_step_with_taps(mesh: Mesh) -> None:
    """Assert that a decode step of an engine with an EAGLE-3 draft copies no weight, nor keeps more than others."""
    step = StepCase(mesh, "llama-3-8b", DECODE, drafts="EAGLE-3, chains")
    compiled = compile_and_check_loops(step)
    max_bytes = 3 * step.logit_share_bytes
    for array in (step.state.kv.pool, *step.state.kv.extra.values()):
        assert_in_place(compiled, array, donated=step.state, max_temp_bytes=max_bytes)
    assert not step.weight_copies(compiled)


def check_draft_model_step(mesh: Mesh, bucket: Bucket) -> None:
    """Assert that weights and KV of a draft model, too, are used where they lie."""
    step = StepCase(mesh, "llama-3.1-8b", bucket, draft="llama-3.2-1b")
    compiled = compile_and_check_loops(step, more=1)
    max_bytes = 4 * step.logit_share_bytes
    for array in (step.state.kv.pool, *step.state.kv.extra.values()):
        assert_in_place(compiled, array, donated=step.state, max_temp_bytes=max_bytes)
    assert not step.weight_copies(compiled)


def check_reads_with_a_draft_model(mesh: Mesh) -> None:
    """Assert that a step of few rows reads the target's weights once, and those of the draft once a pass: of rows that
    are behind, in a loop that counts once, of the last tokens, and of each draft but the last."""
    step = StepCase(mesh, "llama-3.1-8b", FEW_ROWS, draft="llama-3.2-1b")
    compiled = compile_and_check_loops(step, more=1)
    passes, draws = 1 + FEW_ROWS.max_drafts, FEW_ROWS.max_drafts
    platform = mesh.devices.flat[0].platform
    assert 1 <= step.traffic_with_draft(compiled, passes, draws) <= MOST_TRAFFIC_WITH_DRAFT[platform]


def check_late_drafts(mesh: Mesh) -> None:
    """Assert that late rows draw after all of their drafts without a copy of the state or of the head, and without any
    loop that ends by data."""
    step = StepCase(mesh, "llama-3-8b", VERIFY, drafts="chains")
    compiled = step.compile_draw_nodes()
    assert_in_place(compiled, step.state.kv.pool, donated=step.state, max_temp_bytes=3 * step.logit_share_bytes)
    assert not step.weight_copies(compiled)
    assert not data_loops(read_hlo(compiled.as_text()))


def check_late_draw(mesh: Mesh) -> None:
    """Assert that late rows draw without a copy of the state or of the head, and without any loop that ends by data."""
    step = StepCase(mesh, "llama-3-8b", DECODE)
    compiled = step.compile_draw()
    assert_in_place(compiled, step.state.kv.pool, donated=step.state, max_temp_bytes=3 * step.logit_share_bytes)
    assert not step.weight_copies(compiled)
    assert not data_loops(read_hlo(compiled.as_text()))


@pytest.mark.parametrize(("topology", "bucket"), [("v6e:2x2", DECODE), ("tpu7x:2x2x1", DECODE)])
def test_the_backbone_needs_little_memory(topology, bucket):
    step = case(topology, bucket)
    compiled = step.compile_backbone()
    assert_in_place(compiled, step.state.kv.pool, max_temp_bytes=BACKBONE_BYTES[topology])
    assert not step.weight_copies(compiled)
    if bucket == DECODE:
        assert 1 <= step.traffic(compiled, "layers") <= (1.12 if topology == ACTIVATIONS_IN_MEMORY else 1.05)


@pytest.mark.parametrize("topology", ["v6e:2x2", "tpu7x:2x2x1"])
def test_the_head_is_read_once(topology):
    step = case(topology, DECODE)
    compiled = step.compile_ends()
    assert not step.weight_copies(compiled)
    assert 1 <= step.traffic(compiled, "lm_head") <= 1.05
