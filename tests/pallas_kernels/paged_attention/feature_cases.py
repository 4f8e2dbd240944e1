"""Combinations of the op's features: a pairwise covering set for tests, and their product for the proof."""

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any

from pallas_kernels.page_layouts import LAYOUTS
from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.paged_attention.workloads import Workload, in_bucket
from tests.pallas_kernels.paged_attention.attention_calls import BACKENDS
from tests.pallas_kernels.paged_attention.pairwise import pairwise

BATCHES: dict[str, dict[str, dict[str, Any]]] = {
    "mixed": {
        "prefill": {"q_lens": (19,), "kv_lens": (19,)},
        "mixed": {"q_lens": (1, 1, 11, 6), "kv_lens": (5, 64, 66, 6)},
        "one_token_chunks": {"q_lens": (1, 1, 1, 20), "kv_lens": (12, 3, 33, 80), "num_chunk_rows": 3},
    },
    "decode": {
        "decode": {"q_lens": (1, 1, 1, 1), "kv_lens": (75, 1, 32, 20)},
    },
}
"""Batches by bucket: those of one bucket share a program, which costs far more than to run it."""

AXES: dict[str, tuple] = {
    "head_dim": (64, 80, 96, 128, 256),
    "bucket": tuple(BATCHES),
    "heads": ((3, 1), (4, 2), (6, 3), (8, 8)),
    "window": (None, 9, 40),
    "page_tiles": (1, 2),
    "softcap": (None, 2.0),
    "has_sinks": (False, True),
    "tree_words": (0, 1, 2),
    "dtype": ("float32", "bfloat16"),
    "pool": ("same", "other", "int8", "float8_e4m3fn", "float8_e5m2"),
    "write": (True, False),
    "layout": ("rows", "lanes"),
}
SHAPES = ("head_dim", "heads", "layout", "page_tiles")
TEST_AXES = AXES | {
    # Fewer, since a kernel's program takes seconds to compile: 96 is laid out as 80 is, and named workloads have both
    # that and float8_e5m2. Eight heads are unrolled as three are, in more time.
    "head_dim": (64, 80, 128, 256),
    "heads": ((3, 1), (4, 2), (6, 3)),
    "pool": ("same", "other", "int8", "float8_e4m3fn"),
    # Every feature meets every back end; `scripts/prove kernels` runs all features on all back ends.
    "backend": BACKENDS,
}
CASES = pairwise(TEST_AXES)
GPU_AXES = AXES | {
    # What GPUs serve of these, and another type of queries. KV heads are thread blocks of their own: eight of them are
    # three, in more time.
    "heads": ((3, 1), (4, 2), (6, 3)),
    "dtype": ("bfloat16", "float16"),
    "pool": ("same", "int8", "float8_e4m3fn", "float8_e5m2"),
    "layout": ("rows",),
}

Case = dict[str, Any]


def name_of(case: Case) -> str:
    return "-".join(str(value) for value in case.values())


def workload_of(case: Case, batch: str) -> Workload:
    dtype = case["dtype"]
    other = "bfloat16" if dtype == "float32" else "float32"
    pool_dtype = {"same": dtype, "other": other}.get(case["pool"], case["pool"])
    num_heads, num_kv_heads = case["heads"]
    shape = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": case["head_dim"]}
    # The smallest pages that TPUs can have give rows of several pages; where these are large, rows are longer.
    shape["page_size"] = case["page_tiles"] * LAYOUTS[case["layout"]].page_multiple(pool_dtype)
    rows = dict(BATCHES[case["bucket"]][batch])
    if case["layout"] == "lanes":
        rows["kv_lens"] = tuple(4 * kv_len for kv_len in rows["kv_lens"])
    features = {name: case[name] for name in ("window", "softcap", "has_sinks", "tree_words", "dtype", "write")}
    workload = Workload(batch, **rows, **shape, **features, pool_dtype=pool_dtype, layout=case["layout"])
    return in_bucket(workload, {"decode": 5, "mixed": 24}[case["bucket"]], 5, num_columns=12, num_pool_pages=24)


def small_blocks(workload: Workload) -> BlockSizes:
    """Blocks of one page or a few, so that short rows have several."""
    return BlockSizes(positions=max(16, workload.page_size), rows=2, queries=4)


def product_of_features(axes: dict[str, tuple] = AXES) -> Iterator[Case]:
    """Every combination of features, each with sizes drawn at random, so that every feature meets every size.

    Whether there is a window or a tree is a feature, how wide they are a size. Trees are left out where no row has more
    than one token.
    """
    draw = Random(0)
    features = {name: values for name, values in axes.items() if name not in SHAPES}
    features |= dict.fromkeys(("window", "tree_words"), (False, True))
    for values in product(*features.values()):
        case = {name: draw.choice(axes[name]) for name in SHAPES} | dict(zip(features, values, strict=True))
        for name, off in (("window", None), ("tree_words", 0)):
            case[name] = draw.choice([size for size in axes[name] if size]) if case[name] else off
        if case["bucket"] != "decode" or not case["tree_words"]:
            yield case
