"""Every part of the GPU benchmark runs on a CPU, with tiny sizes, and its figures stand on the page."""

import json

import pytest

from pallas_kernels import tuned_blocks
from scripts.benchmarks.gpu import day_parts, device_day, graph_checks, run_part, step_times
from scripts.benchmarks.gpu.day_parts import PARTS
from scripts.benchmarks.gpu.task_list import Journal


@pytest.mark.thorough
def test_every_part_runs_on_a_cpu(tmp_path, monkeypatch):
    engine = step_times.build(day_parts.sizes_of(is_small=True).engine, "xla", "auto")
    monkeypatch.setattr(step_times, "build", lambda *_: engine)  # three parts build one, in 4 s or more
    monkeypatch.setattr(graph_checks, "LLM", lambda *_, **__: engine)  # and another part builds two
    journal = Journal(tmp_path / "journal.jsonl")
    journal.describes({"device": "cpu"})
    for part in PARTS:
        tasks = getattr(day_parts, part.name)(tmp_path, True)
        assert run_part.run(part.name, tasks, journal, lambda: True) == 0
    device_day.write_report(journal, tmp_path, is_dry=True)
    content = json.loads((tmp_path / "gpu-cpu.json").read_text())
    assert content["is_dry_run"]
    records = content["records"]
    assert set(records) == {
        *(
            "ceilings",
            "checks",
            "first attention",
            "first engine",
            "tune",
            "products",
            "adapters",
            "attention",
            "engine",
            "drafts",
            "profile",
            "throughput",
        )
    }
    assert {check["workload"]: check["fault"] for check in records["checks"]} == dict.fromkeys(
        (
            "adapters, tiny",
            "tiny_blocks",
            "tiny_product",
            "tiny_product_int8",
            "tiny_product_fp8",
            "tiny_decode",
            "8_texts_with_graphs",
        )
    )
    blocks, product = records["products"]
    assert blocks["workload"] == "tiny_blocks"
    assert blocks["weight_bytes"] == 64 * 256 * 18 // 32
    assert [one["problem"] for one in product["tried"] if one["time_us"] is None] == []
    assert [(r["workload"], r["adapter_bytes"]) for r in records["adapters"]] == [("tiny_adapter", 2 * 8 * (128 + 96))]
    assert [r["by"] for r in records["attention"]] == ["mosaic_gpu", "xla"]
    assert [step["weights"] for step in records["engine"]] == ["float32", "int8"]
    for step in records["engine"]:
        assert step["num_steps"] >= 20
        assert step["prefill_tokens"] == 32
    (profile,) = records["profile"]
    assert profile["scopes_us"]["layers/mlp"] > 0
    assert [(r["weights"], r["tokens_out"]) for r in records["throughput"]] == [("float32", 32), ("int8", 32)]
    assert {"tiny_decode by cuDNN", "tiny_decode by PyTorch SDPA"} < {*content["missing"]["attention"]}
    assert "lanes" in content["missing"]["checks"]["phi3_mini_mixed_lanes"]
    text = (tmp_path / "gpu-cpu.md").read_text()
    assert "A dry run on the CPU" in text
    for title in (
        "Ceilings",
        "First look",
        "Products of few rows",
        "Decode attention",
        "Whole decode steps",
        "Where a decode step's time goes",
        "Steps of prompts",
        "Throughput",
        "Not measured",
        "Tile sizes",
    ):
        assert f"## {title}" in text
    (file,) = (tmp_path / "tuned").rglob("paged_attention.json")
    tuned_blocks.parse("paged_attention", json.loads(file.read_text()), str(file))
    assert not product["is_faster"], "an interpreted kernel"
    assert not list(tmp_path.rglob("matmul.json"))
