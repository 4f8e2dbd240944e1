"""The report of the GPU benchmark: shares of the run's ceilings, failed checks, missing measurements, bars to scale."""

import xml.etree.ElementTree as xml

from scripts.benchmarks.gpu import gpu_tables
from scripts.benchmarks.gpu.gpu_page import AIMS, drawn, page
from scripts.benchmarks.gpu.svg_bars import bars
from scripts.benchmarks.gpu.task_list import Results

CEILING = {"bytes_per_s": 4e12, "ops_per_s": 8e14}


def attention(workload: str, by: str, call_s: float, **changes) -> dict:
    figures = {"is_ours": by == "mosaic_gpu", "is_decode": True, "kv_bytes": 2e9, "ops": 4e11}
    return {"workload": workload, "by": by, "call_s": call_s, **figures, **changes}


def measured() -> Results:
    results = Results()
    results.records = {
        "checks": [{"workload": "one", "pool": "int8", "error": 1e-3, "bound": 2**-7, "fault": None}],
        "ceilings": [CEILING],
        "attention": [
            attention("d", "mosaic_gpu", 1e-3),
            attention("p", "mosaic_gpu", 1e-3, is_decode=False),
            attention("d", "xla", 4e-3),
        ],
        "engine": [
            {"backend": "xla", "weights": "int8", "batch": 64, "num_steps": 9, "context": 1050.0}
            | {"step_s": 0.01, "weight_bytes": 1.5e10, "kv_bytes": 9e9}
            | {"prefill_tokens": 2048, "prefill_s": 0.1, "prefill_ops": 4e13}
        ],
    }
    results.missing = {"attention": {"d by cuDNN": "cuDNN is not detected."}}
    return results


def column(rows: gpu_tables.Rows, name: str) -> list[str]:
    return [row[rows[0].index(name)] for row in rows[1:]]


def test_shares_are_of_the_same_runs_ceilings():
    results = measured()
    assert column(gpu_tables.decode(results), "MBU") == ["50%", "12%"]
    assert column(gpu_tables.decode(results), "times ours") == ["1.00", "4.00"]
    assert column(gpu_tables.prefill(results), "MFU") == ["50%"]
    assert column(gpu_tables.engine(results), "MBU") == ["60%"]
    assert column(gpu_tables.engine(results), "tokens/s") == ["6,400"]
    assert column(gpu_tables.prompts(results), "MFU") == ["50%"]
    results.records["ceilings"] = []
    assert column(gpu_tables.decode(results), "MBU") == ["–", "–"]
    assert not drawn(results)


def test_the_page_says_what_is_wrong_and_what_is_missing():
    results = measured()
    about = {"device": "NVIDIA H200"}
    text = page(results, about, ["a.svg"], is_dry=False)
    assert "All 1 checked workloads equal the reference" in text
    assert "| attention | d by cuDNN | cuDNN is not detected. |" in text
    assert "![a.svg](a.svg)" in text
    assert "dry run" not in text
    results.records["checks"][0]["fault"] = "another pool"
    assert "**1 of 1 checked workloads are wrong**: one." in page(results, about, [], is_dry=False)
    assert "Failed" not in text
    results.failed = {"checks": ["two"]}
    assert "**Failed tasks**: two (checks)." in page(results, about, [], is_dry=False)


def test_drawings_are_bars_to_scale():
    root = xml.fromstring(bars("A & B", {"x": {"a": 0.5, "b": 1.0}, "y": {"a": 0.25}}, aim=0.75))
    heights = [float(box.get("height", 0)) for box in root.findall("{*}rect") if len(box)]
    assert heights == [110, 220, 55]
    assert {*drawn(measured())} == {*AIMS}
