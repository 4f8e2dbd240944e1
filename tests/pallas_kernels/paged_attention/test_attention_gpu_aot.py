"""XLA compiles the attention kernels for Hopper GPUs: the pool stays where it lies, and no register is spilled."""

from typing import Any

import pytest

from tests.pallas_kernels.paged_attention.attention_compiled import (
    GEMMA3_270M,
    GPT_OSS_20B,
    LLAMA3_8B,
    NUM_ROWS,
    compile_case,
)
from tests.support.aot import assert_in_place, gpu_mesh, ptxas_report

MB = 1 << 20
PHI2: dict[str, Any] = {"heads": (32, 32), "head_dim": 80}
CASES: dict[str, dict[str, Any]] = {
    "llama3_8b_decode": LLAMA3_8B | {"num_tokens": 64},
    "llama3_8b_prefill": LLAMA3_8B | {"num_tokens": 2048},
    "gemma3_270m_mixed": GEMMA3_270M | {"num_tokens": 256, "page_size": 16},
    "gpt_oss_20b_trees_int8": GPT_OSS_20B | {"num_tokens": 512, "tree_words": 1, "pool_dtype": "int8"},
    "phi2_float16": PHI2 | {"num_tokens": 64, "dtype": "float16"},
    "phi2_int8": PHI2 | {"num_tokens": 64, "pool_dtype": "int8"},
    "falcon_7b_fp8": {"heads": (71, 1), "head_dim": 64, "num_tokens": 64, "pool_dtype": "float8_e5m2"},
}


@pytest.mark.parametrize("name", CASES)
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


def test_other_generations_are_left_to_xla_with_a_reason():
    case = CASES["llama3_8b_decode"]
    with pytest.raises(NotImplementedError, match=r"mosaic_gpu: its kernels are for Hopper .*A100"):
        compile_case(gpu_mesh("a100"), **case, backend="mosaic_gpu")
    with ptxas_report() as kernels:
        compile_case(gpu_mesh("a100"), **case)
    assert kernels == []
