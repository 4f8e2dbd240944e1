"""The GPU kernels, interpreted, equal the reference in float64: features in pairs, and shapes of real models."""

from dataclasses import replace

import pytest

from pallas_kernels.paged_attention.arg_specs import WORKLOADS, Workload
from pallas_kernels.paged_attention.workloads import in_bucket
from tests.pallas_kernels.paged_attention.attention_checks import check
from tests.pallas_kernels.paged_attention.pairwise import pairwise

AXES = {
    "head_dim": (64, 80, 256),
    "heads": ((3, 1), (4, 2)),
    "batch": ("mixed", "decode"),
    "window": (None, 9, 70),
    "page_size": (16, 128),
    "softcap": (None, 2.0),
    "has_sinks": (False, True),
    "tree_words": (0, 1),
    "dtype": ("bfloat16", "float16"),
    "pool_dtype": (None, "int8", "float8_e4m3fn"),
    "write": (True, False),
}
CASES = pairwise(AXES)
BATCHES = {"mixed": ((1, 1, 11, 6), (5, 164, 66, 6)), "decode": ((1, 1, 1), (75, 1, 232))}
# Prompts of as many lines occupy the two multiprocessors that are simulated, so that two warpgroups share a tile.
NAMED = {"llama3_8b_tp8_wide_trees", "falcon_7b_decode", "smollm2_prefill", "llama3_8b_tp4_chunk_float8"}
BFLOAT16 = [replace(workload, dtype="bfloat16") for workload in WORKLOADS]


def workload_of(case: dict) -> Workload:
    num_heads, num_kv_heads = case["heads"]
    q_lens, kv_lens = BATCHES[case["batch"]]
    features = {name: value for name, value in case.items() if name not in ("heads", "batch")}
    workload = Workload(case["batch"], q_lens, kv_lens, num_heads, num_kv_heads, **features)
    return in_bucket(workload, sum(q_lens) + 2 * (len(q_lens) > 3), len(q_lens) + 1, 16, 40)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_every_two_features_together_equal_the_reference(case):
    check(workload_of(case), "mosaic_gpu")


@pytest.mark.parametrize("workload", [w for w in BFLOAT16 if w.name in NAMED], ids=lambda workload: workload.name)
def test_shapes_of_real_models_equal_the_reference(workload):
    check(workload, "mosaic_gpu")
