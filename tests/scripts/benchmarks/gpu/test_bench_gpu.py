"""The GPU benchmark runs completely on a CPU, keeps its time limit, and lists what it leaves out."""

import json
import sys
from pathlib import Path

import pytest

from jaxserve.core.buckets import Bucket
from jaxserve.engine.loop.step_stats import StepMoments, StepRecord
from pallas_kernels import tuned_blocks
from scripts.benchmarks.gpu import bench_gpu
from scripts.benchmarks.gpu.step_times import median_step
from scripts.benchmarks.gpu.task_list import NO_TIME, SHARES, Budget, OutOfTime, Results, Task, run_part


def test_parts_share_the_time_and_leave_the_rest_to_the_next():
    now = 0.0
    budget = Budget(8, list(SHARES), lambda: now)
    now = 0.3 * 480
    assert budget.is_over("checks")
    assert not budget.is_over("tune")
    now = 480
    assert all(budget.is_over(part) for part in SHARES)
    assert not Budget(8, ["engine"], lambda: 479.0 if now else 0).is_over("engine")


def test_what_cannot_run_is_listed_with_its_reason():
    def fails(error):
        raise error

    now, said = 0.0, []

    def slow():
        nonlocal now
        now = 61.0
        return {"figure": 1}

    tasks = [
        Task("stepped aside", lambda: fails(NotImplementedError("head dim 7 is not served"))),
        Task("broken", lambda: fails(RuntimeError("no memory\nmuch more"))),
        Task("stopped", lambda: fails(OutOfTime())),
        Task("slow", slow),
        Task("late", lambda: {"figure": 2}),
    ]
    results = Results()
    run_part("tune", tasks, Budget(1, ["tune"], lambda: now), results, said.append)
    assert results.records == {"tune": [{"figure": 1}]}
    assert results.missing["tune"] == {
        "stepped aside": "head dim 7 is not served",
        "broken": "RuntimeError: no memory",
        "stopped": NO_TIME,
        "late": NO_TIME,
    }
    assert len(said) == 4


def step(num_rows: int, num_decodes: int, num_tokens: int, collected_s: float, previous_s: float = 0.0) -> StepRecord:
    """Submitted half a second before it was collected."""
    moments = StepMoments(0, 0, submitted_s=collected_s - 0.5, collected_s=collected_s, previous_s=previous_s)
    return StepRecord(Bucket(num_tokens, num_rows, 8), num_rows, num_tokens, num_decodes, moments)


def test_the_median_step_is_one_in_which_all_sequences_decode():
    """Two prompts of 10 tokens; the first sequence decodes alone while the second is computed."""
    records = [step(1, 0, 10, 1), step(2, 1, 11, 2), step(2, 2, 2, 9), step(2, 2, 2, 9.25, 9), step(2, 2, 2, 9.5, 9.25)]
    assert median_step(records, 2) == {"num_steps": 3, "step_s": 0.25, "context": (10 + 11 + 4) / 2}


def test_every_part_runs_on_a_cpu(tmp_path, capsys):
    assert bench_gpu.main(["--dry-run", "--out", str(tmp_path)]) == 0
    assert "its numbers are meaningless" in capsys.readouterr().out
    content = json.loads((tmp_path / "gpu-cpu.json").read_text())
    assert content["is_dry_run"]
    assert all(content["records"][part] for part in SHARES)
    (check,) = content["records"]["checks"]
    assert check["error"] <= check["bound"]
    assert [r["by"] for r in content["records"]["attention"]] == ["mosaic_gpu", "xla"]
    (step,) = content["records"]["engine"]
    assert step["num_steps"] >= 2
    assert {"tiny_decode by cuDNN", "tiny_decode by PyTorch SDPA"} < {*content["missing"]["attention"]}
    assert "lanes" in content["missing"]["checks"]["phi3_mini_mixed_lanes"]
    text = (tmp_path / "gpu-cpu.md").read_text()
    assert "A dry run on the CPU" in text
    for title in (
        "Ceilings",
        "Decode attention",
        "Whole decode steps",
        "Not measured",
        "Tile sizes",
    ):
        assert f"## {title}" in text
    (file,) = (tmp_path / "tuned").rglob("paged_attention.json")
    tuned_blocks.parse("paged_attention", json.loads(file.read_text()), str(file))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--dry-run", "--out", "docs/benchmarks"], "not written to docs"),
        (["--only", "checks,speed"], "speed: parts are checks, tune, ceilings, attention, engine"),
        (["--minutes", "0"], "must be a number of minutes above 0"),
    ],
)
def test_mistakes_are_told(argv, message, capsys, monkeypatch):
    monkeypatch.chdir(Path(bench_gpu.__file__).parents[3])
    with pytest.raises(SystemExit) as exit_:
        bench_gpu.main(argv)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_without_a_gpu_it_says_so(capsys):
    assert bench_gpu.main([]) == 2
    assert "GPU" in capsys.readouterr().err


def test_help_needs_no_jax(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(SystemExit) as exit_:
        bench_gpu.main(["--help"])
    assert exit_.value.code == 0
    assert "--dry-run" in capsys.readouterr().out
