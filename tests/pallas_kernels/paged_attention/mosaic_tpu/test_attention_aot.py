"""libtpu compiles the attention kernels for every TPU: the pool is updated in place, with few temporaries."""

from itertools import cycle
from typing import Any

import pytest

from tests.pallas_kernels.paged_attention.mosaic_tpu.attention_compiled import (
    GEMMA3_270M,
    GPT_OSS_20B,
    LLAMA3_8B,
    NUM_ROWS,
    compile_case,
)
from tests.support.compiled.aot import TPU_TOPOLOGIES, assert_in_place, tpu_mesh

MB = 1 << 20
EVERYWHERE: dict[str, dict[str, Any]] = {
    "llama3_8b_decode": LLAMA3_8B | {"num_tokens": 64},
    "gemma3_270m_mixed": GEMMA3_270M | {"num_tokens": 256},
}
ON_ONE: dict[str, dict[str, Any]] = {
    "gpt_oss_20b_trees_int8": GPT_OSS_20B | {"num_tokens": 512, "tree_words": 1, "pool_dtype": "int8"},
    "llama3_8b_mixed_page_16": LLAMA3_8B | {"num_tokens": 512, "page_size": 16},
    "llama3_8b_fp8_page_128": LLAMA3_8B | {"num_tokens": 64, "page_size": 128, "pool_dtype": "float8_e4m3fn"},
    "phi2_float32": {"heads": (32, 32), "head_dim": 80, "num_tokens": 128, "dtype": "float32"},
    "phi3_mini_shared_kv": {"heads": (32, 32), "head_dim": 96, "num_tokens": 128, "write": False},
    "falcon_7b_fp8": {"heads": (71, 1), "head_dim": 64, "num_tokens": 64, "pool_dtype": "float8_e5m2"},
}
LANES: dict[str, Any] = {"layout": "lanes", "page_size": 128}
LANES_SOMEWHERE: dict[str, dict[str, Any]] = {
    "phi2_in_lanes": LANES | {"heads": (32, 32), "head_dim": 80, "num_tokens": 128},
    "gpt_oss_20b_trees_int8_in_lanes": LANES | ON_ONE["gpt_oss_20b_trees_int8"],
}
IN_THE_PROOF = ("gpt_oss_20b_trees_int8", "llama3_8b_mixed_page_16", "llama3_8b_fp8_page_128", "phi3_mini_shared_kv")
WORKLOADS = EVERYWHERE | ON_ONE | LANES_SOMEWHERE
# Every topology, and workloads that differ most; `scripts/prove aot` compiles the product of all.
CASES = [
    *zip(TPU_TOPOLOGIES, cycle(EVERYWHERE), strict=False),
    *(("v6e:2x2", name) for name in ON_ONE if name not in IN_THE_PROOF),
    *zip(("v5e:2x2", "tpu7x:2x2x1"), LANES_SOMEWHERE, strict=True),
]


@pytest.mark.thinned(4)
@pytest.mark.parametrize(("topology", "name"), CASES)
def test_kernels_compile_and_leave_the_pool_in_place(topology, name):
    case = WORKLOADS[name]
    compiled, pool = compile_case(tpu_mesh(topology), **case)
    assert "paged_attention_decode" in compiled.as_text()
    assert ("paged_attention_chunks" in compiled.as_text()) == (case["num_tokens"] > NUM_ROWS)
    # Queries, outputs, new rows and what of a tree depends on the line: by size, not by the pool.
    assert_in_place(compiled, pool, max_temp_bytes=24 * MB, donated=None if case.get("write", True) else ())


def test_the_control_xla_copies_the_pool_on_a_tpu():
    compiled, pool = compile_case(tpu_mesh("v6e:2x2"), **EVERYWHERE["llama3_8b_decode"], backend="xla")
    with pytest.raises(AssertionError, match="MB of temporaries"):
        assert_in_place(compiled, pool, max_temp_bytes=512 * MB)
