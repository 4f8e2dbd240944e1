"""The tuner stores the fastest correct block sizes, and `tuned` finds them."""

import json
from dataclasses import replace

import pytest

from pallas_kernels.paged_attention.block_sizes import BlockSizes
from pallas_kernels.tuned_blocks import tuned
from scripts.benchmarks.kernels import block_sweep, tune_kernels
from scripts.benchmarks.kernels.measure_kernel import Sampling
from scripts.benchmarks.kernels.workload_names import KNOWN

DECODE = KNOWN["smollm2_decode"]
CHUNKS = KNOWN["smollm2_prefill"]


def tried(positions, time_us, problem=None):
    return {"block": BlockSizes(positions=positions, rows=4), "time_us": time_us, "problem": problem}


def test_it_says_that_it_needs_an_accelerator(capsys):
    assert tune_kernels.main(["smollm2_decode"]) == 2
    assert "JAX finds no accelerator" in capsys.readouterr().err


def test_candidates_fit_pages_and_contexts():
    long, short = (replace(DECODE, kv_lens=(length,) * 8, page_size=256) for length in (8192, 300))
    assert {block.positions for block in block_sweep.candidates(long, "tpu")} == {256, 512, 1024, 2048}
    assert {block.positions for block in block_sweep.candidates(short, "tpu")} == {256, 512}
    assert {block.queries for block in block_sweep.candidates(CHUNKS, "tpu")} == {16, 32, 64, 128, 256}
    assert block_sweep.kind_of(KNOWN["smollm2_mixed"]) is None


def test_tiles_of_a_gpu_fill_one_or_two_warpgroups():
    """Of 64 lines; four heads of Llama-3-8B share a KV head, three of SmolLM2."""
    assert {block.positions for block in block_sweep.candidates(DECODE, "gpu")} == {64, 128}
    assert {block.queries for block in block_sweep.candidates(KNOWN["llama3_8b_prefill_4x2k"], "gpu")} == {16, 32}
    assert {block.queries for block in block_sweep.candidates(CHUNKS, "gpu")} == {32, 64}


@pytest.mark.parametrize("w", [DECODE, CHUNKS], ids=lambda w: w.name)
def test_right_blocks_are_timed(w):
    one = block_sweep.try_block(w, BlockSizes(positions=128, rows=4, queries=32), "xla", Sampling(seconds=0, count=1))
    assert one["problem"] is None
    assert one["time_us"] > 0


def test_wrong_blocks_are_not_timed(monkeypatch):
    monkeypatch.setattr(block_sweep, "error", lambda *_: 0.03)
    assert block_sweep.try_block(DECODE, BlockSizes(), "xla") == tried_as(BlockSizes(), "wrong by 3.0%")
    monkeypatch.setattr(block_sweep, "error", lambda *_: float("nan"))
    assert block_sweep.try_block(DECODE, BlockSizes(), "xla") == tried_as(BlockSizes(), "wrong by nan%")


def tried_as(block, problem):
    return {"block": block, "time_us": None, "problem": problem}


def test_blocks_that_do_not_fit_are_told_why():
    one = block_sweep.try_block(replace(DECODE, page_size=256), BlockSizes(positions=128), "xla")
    assert one["time_us"] is None
    assert "must be a multiple of the page size 256" in one["problem"]


def test_the_fastest_is_kept_and_shown():
    results = [tried(128, 9.0), tried(256, 5.0), tried(512, None, "wrong by 3.0%")]
    assert tune_kernels.fastest(results) == [results[1]]
    assert tune_kernels.fastest(results[2:]) == []
    heading, first, _, last = tune_kernels.table(results)
    assert heading[0] == "positions"
    assert (first[0], first[-1]) == ("256", "fastest")
    assert (last[0], last[-1]) == ("512", "wrong by 3.0%")


def test_what_is_written_is_found(tmp_path):
    file = tmp_path / "tpu_v6_lite" / "paged_attention.json"
    tune_kernels.write(
        file,
        "TPU v6 lite",
        [tune_kernels.entry(DECODE, tried(256, 5.0), "tpu"), tune_kernels.entry(CHUNKS, tried(128, 7.0), "tpu")],
    )
    key = {
        name: value
        for name, value in tune_kernels.entry(DECODE, tried(256, 5.0), "tpu").items()
        if name not in ("block", "time_us")
    }
    assert tuned("paged_attention", "TPU v6 lite", key, tmp_path) == {"positions": 256, "rows": 4}
    assert tuned("paged_attention", "TPU v6 lite", key | {"kind": "chunks"}, tmp_path) == {
        "positions": 128,
        "queries": 64,
    }
    tune_kernels.write(file, "TPU v6 lite", [tune_kernels.entry(DECODE, tried(512, 4.0), "gpu")])
    assert tuned("paged_attention", "TPU v6 lite", key, tmp_path) == {"positions": 512}


def test_a_later_run_replaces_its_own_keys_only(tmp_path):
    file = tmp_path / "paged_attention.json"
    tune_kernels.write(
        file,
        "TPU v6 lite",
        [tune_kernels.entry(DECODE, tried(256, 5.0), "tpu"), tune_kernels.entry(CHUNKS, tried(128, 7.0), "tpu")],
    )
    tune_kernels.write(
        file,
        "TPU v6 lite",
        [tune_kernels.entry(DECODE, tried(512, 6.0), "tpu"), tune_kernels.entry(DECODE, tried(1024, 4.0), "tpu")],
    )
    times = {entry["kind"]: entry["time_us"] for entry in json.loads(file.read_text())["entries"]}
    assert times == {"decode": 4.0, "chunks": 7.0}
