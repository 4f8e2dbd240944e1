"""The XLA path equals the reference, feature by feature in pairs and on the shapes of real models."""

import numpy as np
import pytest

from pallas_kernels.paged_attention.arg_specs import WORKLOADS, Workload, build
from pallas_kernels.paged_attention.config import BlockSizes
from tests.pallas_kernels.paged_attention.attention_calls import attend
from tests.pallas_kernels.paged_attention.pairwise import pairwise

BATCHES = {
    "decode": {"q_lens": (1, 1, 1), "kv_lens": (37, 1, 20), "padding_tokens": 1, "padding_rows": 1},
    "prefill": {"q_lens": (19,), "kv_lens": (19,)},
    "mixed": {"q_lens": (1, 1, 11, 6), "kv_lens": (5, 40, 26, 6), "padding_tokens": 3},
    "one_token_chunks": {"q_lens": (1, 1, 1, 5), "kv_lens": (12, 3, 33, 40), "num_chunk_rows": 3, "padding_columns": 2},
}
AXES = {
    "head_dim": (64, 80, 96, 128, 256),
    "batch": tuple(BATCHES),
    "heads": ((3, 1), (4, 4), (6, 3)),
    "window": (None, 9, 18),
    "page_size": (8, 16),
    "softcap": (None, 2.0),
    "has_sinks": (False, True),
    "is_tree": (False, True),
    "dtype": ("float32", "bfloat16"),
    "write": (True, False),
}
CASES = pairwise(AXES)
SMALL_BLOCKS = BlockSizes(positions=16, rows=2, queries=8)


def workload_of(case: dict) -> Workload:
    options = {name: case[name] for name in AXES if name not in ("batch", "heads")}
    num_heads, num_kv_heads = case["heads"]
    return Workload(case["batch"], **BATCHES[case["batch"]], num_heads=num_heads, num_kv_heads=num_kv_heads, **options)


def check(workload: Workload, block: BlockSizes | None) -> None:
    arguments = build(workload)
    got = attend(arguments, backend="xla", block=block, compile_fast=True)
    expected = attend(arguments, backend="reference", compile_fast=True)
    # Both compute in float32 and round once: bfloat16 outputs differ by one unit in the last place at most.
    tolerance = 3e-6 if workload.dtype == "float32" else 8e-3
    np.testing.assert_allclose(got.o, expected.o, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(got.pool[:, 1:], expected.pool[:, 1:])
    assert np.isfinite(got.o).all()
    assert np.abs(expected.o[: sum(workload.q_lens)]).max() > 0.1
    assert not got.o[sum(workload.q_lens) :].any(), "padding tokens give zeros"


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_every_two_features_together_equal_the_reference(case):
    check(workload_of(case), SMALL_BLOCKS)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_shapes_of_real_models_equal_the_reference(workload):
    check(workload, None)


def test_the_cases_hold_every_pair():
    for a in AXES:
        for b in AXES:
            if a != b:
                assert len({(case[a], case[b]) for case in CASES}) == len(AXES[a]) * len(AXES[b])
