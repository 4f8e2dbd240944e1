"""The step of Llama 3 8B on one H200, compiled by XLA: the state is updated in place, by kernels that spill nothing."""

from jaxserve.core.buckets import Bucket
from tests.support.aot import assert_in_place, gpu_mesh, ptxas_report
from tests.support.aot_step import StepCase


def test_the_whole_step_updates_its_state_in_place():
    step = StepCase(gpu_mesh(), "llama-3-8b", Bucket(64, 64, 128))
    with ptxas_report() as kernels:
        compiled = step.compile()
    assert {kernel.kernel for kernel in kernels} == {"paged_attention_items", "paged_attention_combine"}
    assert not any(kernel.spill_bytes for kernel in kernels)
    # 2 % of the weights; the head and the sampler hold three times the logits' 98 MB at most.
    assert_in_place(compiled, step.state.pool, donated=step.state, max_temp_bytes=320 * 10**6)
