"""Bytes and operations equal a count over every query and every page."""

from dataclasses import replace

import pytest

from pallas_kernels.paged_attention.workloads import BENCH_WORKLOADS, WORKLOADS
from scripts.benchmarks.kernels.attention_cost import cost, pairs
from scripts.benchmarks.kernels.workload_names import KNOWN, read_workload, workloads, write_workload


def seen_by(w, q_len, kv_len):
    """The positions that each new token of a row sees."""
    for token in range(kv_len - q_len, kv_len):
        yield range(0 if w.window is None else max(0, token - w.window + 1), token + 1)


@pytest.mark.parametrize("w", WORKLOADS, ids=lambda w: w.name)
def test_cost_equals_counting(w):
    rows = list(zip(w.q_lens, w.kv_lens, strict=True))
    assert pairs(w) == sum(len(seen) for row in rows for seen in seen_by(w, *row))
    pages = [{position // w.page_size for seen in seen_by(w, *row) for position in seen} for row in rows]
    lanes = {64: 128, 80: 256, 96: 256, 128: 256, 256: 512}[w.head_dim]
    if w.layout == "lanes":
        lanes = 2 * w.head_dim  # heads of 64, 96 and 128 are whole tiles of every type
    item_bytes = {"float32": 4, "bfloat16": 2}.get(w.stored_dtype, 1)
    assert cost(w).kv_bytes == sum(map(len, pages)) * w.page_size * w.num_kv_heads * lanes * item_bytes
    assert cost(w).ops == 4 * pairs(w) * w.num_heads * w.head_dim


def test_narrow_tiles_read_pages_again():
    w = KNOWN["llama3_8b_prefill_4x2k"]
    assert cost(w, 2048).kv_bytes == cost(w).kv_bytes
    tiles = [64 * (tile + 1) for tile in range(32)]
    assert cost(w, 64).kv_bytes == 4 * sum(tiles) * 8 * 256 * 2


def test_a_known_size():
    """64 rows × 8192 positions × 8 heads × (128 + 128) × 2 bytes."""
    w = KNOWN["llama3_8b_decode_64x8k"]
    assert cost(w).kv_bytes == 2**31
    assert cost(w).other_bytes == 64 * 2 * (2 * 32 * 128 + 2 * 2 * 8 * 128)
    assert cost(replace(w, write=False)).other_bytes == 64 * 2 * 2 * 32 * 128


def test_workloads_travel_as_text():
    for w in (*WORKLOADS, *BENCH_WORKLOADS):
        assert read_workload(write_workload(w)) == w == read_workload(w.name)


def test_workloads_are_found_by_name_and_page_size():
    assert workloads(["all"]) == list(BENCH_WORKLOADS)
    assert [w.page_size for w in workloads(["llama3_8b_decode_64x8k", "llama3_8b_decode_64x8k@128"])] == [64, 128]
    assert {w.page_size for w in workloads(["all@256"])} == {256}
    with pytest.raises(ValueError, match="as in all@128"):
        workloads(["all@big"])
    with pytest.raises(ValueError, match=r"there is no workload llama9; known are: all, llama3_8b_decode"):
        workloads(["all", "llama9"])
