"""XLA compiles the attention kernels for Hopper GPUs: the pool is updated in place, and no register is spilled."""

from typing import Any

import pytest

from jaxserve.core.hardware.mesh import device_bytes
from tests.pallas_kernels.paged_attention.mosaic_tpu.attention_compiled import (
    GEMMA3_270M,
    GPT_OSS_20B,
    LLAMA3_8B,
    NUM_ROWS,
    compile_case,
)
from tests.support.compiled.aot import assert_in_place, gpu_mesh, ptxas_report

MB = 1 << 20
# The tests compile two of these, `scripts/prove aot` all.
# Those of longer rows compile the kernel of one-token rows too. Decoding at Llama 3 8B's shapes is compiled in the
# engine's step (tests/jaxserve/runner/step/test_gpu_step_aot.py).
CASES: dict[str, dict[str, Any]] = {
    "llama3_8b_prefill": LLAMA3_8B | {"num_tokens": 2048},
    "gemma3_270m_decode": GEMMA3_270M | {"num_tokens": 64, "page_size": 16},
    "gpt_oss_20b_trees_int8": GPT_OSS_20B | {"num_tokens": 512, "tree_words": 1, "pool_dtype": "int8"},
    "phi2_float16": {"heads": (32, 32), "head_dim": 80, "num_tokens": 64, "dtype": "float16"},
    # Falcon's heads, which two warpgroups share, and Phi-2's width, of which tiles of 8 bits hold keys and values.
    "71_heads_of_80_fp8": {"heads": (71, 1), "head_dim": 80, "num_tokens": 64, "pool_dtype": "float8_e5m2"},
}


@pytest.mark.thinned(1)
@pytest.mark.parametrize("name", ["llama3_8b_prefill", "71_heads_of_80_fp8"])
def test_kernels_compile_without_spilling_and_leave_the_pool_in_place(name):
    case = CASES[name]
    with ptxas_report() as kernels:
        compiled, pool = compile_case(gpu_mesh(), **case)
    has_longer_rows = case["num_tokens"] > NUM_ROWS
    assert sum(kernel.kernel == "paged_attention_items" for kernel in kernels) == 1 + has_longer_rows
    assert any(kernel.kernel == "paged_attention_combine" for kernel in kernels)
    assert {kernel.kernel: kernel.spill_bytes for kernel in kernels if kernel.spill_bytes} == {}
    # Items' outputs in float32 before they are combined, which the number of rows bounds.
    assert_in_place(compiled, pool, max_temp_bytes=192 * MB)


@pytest.mark.parametrize(("target", "model"), [("a100", "A100-SXM4-80GB"), ("b200", "B200")])
def test_other_generations_are_refused_with_the_reason(target, model):
    case = LLAMA3_8B | {"num_tokens": 64, "backend": "mosaic_gpu"}
    with pytest.raises(NotImplementedError, match=rf"mosaic_gpu: its kernels are for Hopper .* not for NVIDIA {model}"):
        compile_case(gpu_mesh(target), **case)


@pytest.mark.thorough
def test_a_newer_generation_is_left_to_xla():
    """As an older one is (tests/jaxserve/runner/step/test_gpu_step_aot.py)."""
    with ptxas_report() as kernels:
        compiled, pool = compile_case(gpu_mesh("b200"), **LLAMA3_8B, num_tokens=64)
    assert kernels == []
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes == device_bytes(pool)
    assert memory.temp_size_in_bytes < 300 * MB, "XLA gathers pages, but does not copy the pool"
