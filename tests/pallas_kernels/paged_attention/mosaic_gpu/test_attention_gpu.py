"""The GPU kernels, interpreted, equal the reference in float64: features in pairs, and shapes of real models."""

from collections.abc import Iterator
from functools import partial

import jax
import pytest

from pallas_kernels.paged_attention.api import plan
from pallas_kernels.paged_attention.mosaic_gpu import kernel_sizes
from pallas_kernels.paged_attention.workload_arguments import build, model_of
from pallas_kernels.paged_attention.workloads import FALCON_7B, SMOLLM2, Workload, in_bucket
from tests.pallas_kernels.paged_attention.attention_calls import changed
from tests.pallas_kernels.paged_attention.attention_checks import check
from tests.pallas_kernels.paged_attention.mosaic_gpu.tiny_gpu import BLOCK, tiny_gpu
from tests.pallas_kernels.paged_attention.pairwise import pairwise

# Axes of three values first, which makes fewest cases. Heads of 64 and 128 are among the models' shapes.
AXES = {
    "pool_dtype": (None, "int8", "float8_e4m3fn"),
    "window": (None, 9, 70),
    "rows": ("decode", "mixed", "trees"),
    "head_dim": (80, 256),
    "has_sinks": (False, True),
    "softcap": (None, 2.0),
    "page_size": (16, 128),
    "dtype": ("bfloat16", "float16"),
    "heads": ((3, 1), (4, 2)),
    "write": (True, False),
}
CASES = pairwise(AXES)
ROWS = {
    "decode": ((1, 1, 1), (75, 1, 500)),
    "mixed": ((1, 1, 7), (260, 5, 230)),
    "trees": ((1, 7), (150, 230)),
}
# Two warpgroups share a tile of a prompt that leaves no multiprocessor idle, and the 71 lines of a KV head.
SHAPES = [
    Workload("smollm2_chunk", (50,), (300,), **SMOLLM2, dtype="bfloat16", padding_rows=1),
    Workload("falcon_7b_decode", (1, 1), (60, 200), **FALCON_7B, dtype="bfloat16", pool_dtype="float8_e5m2"),
]


@pytest.fixture(autouse=True)
def _on_a_tiny_gpu() -> Iterator[None]:
    with tiny_gpu():
        yield


def workload_of(case: dict) -> Workload:
    (num_heads, num_kv_heads), (q_lens, kv_lens) = case["heads"], ROWS[case["rows"]]
    features = {name: value for name, value in case.items() if name not in ("heads", "rows")}
    features["tree_words"] = int(case["rows"] == "trees")
    workload = Workload(case["rows"], q_lens, kv_lens, num_heads, num_kv_heads, **features)
    return in_bucket(workload, sum(q_lens) + (case["rows"] != "decode"), 3, 32, 48)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_every_two_features_together_equal_the_reference(case):
    check(workload_of(case), "mosaic_gpu", BLOCK)


@pytest.mark.parametrize("workload", SHAPES, ids=lambda workload: workload.name)
def test_shapes_of_real_models_equal_the_reference(workload):
    check(workload, "mosaic_gpu")


def test_contexts_are_divided_here_and_parts_exceed_the_ring():
    """Else the cases above would show neither."""
    num_parts, part_len = 0, 0
    for heads in AXES["heads"]:
        workload = workload_of({name: values[0] for name, values in AXES.items()} | {"rows": "mixed", "heads": heads})
        arguments = changed(build(workload), backend="mosaic_gpu", block=BLOCK)
        make_plan = jax.jit(partial(plan, spec=arguments["spec"], model=model_of(workload)))
        planned = make_plan(arguments["meta"]).plan
        for part in (planned.decode, planned.longer):
            num_parts = max(num_parts, part.items.count.max())
            part_len = max(part_len, (part.items.fields[3] - part.items.fields[2]).max())
    assert num_parts > 1
    assert part_len > kernel_sizes.MAX_DEPTH
