"""The GPU benchmark survives what crashes, and lists what it leaves out."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jaxserve.core.buckets import Bucket
from jaxserve.core.step_outcome import DraftCounts
from jaxserve.engine.loop.step_stats import StepMoments, StepRecord
from scripts.benchmarks.gpu import device_day, run_part
from scripts.benchmarks.gpu.day_parts import Part
from scripts.benchmarks.gpu.draft_times import pass_figures
from scripts.benchmarks.gpu.gpu_tables import expected_gain
from scripts.benchmarks.gpu.step_times import median_prefill, median_step
from scripts.benchmarks.gpu.task_list import Journal, Task


def names(folder: Path, part: str) -> list[str]:
    return [line["ends"] for line in Journal(folder / "journal.jsonl").of(part) if "ends" in line]


def test_what_crashes_hangs_or_breaks_the_device_costs_its_task_alone(tmp_path, capfd):
    part, journal = Part("planted", "tests.support.planted_tasks:tasks"), Journal(tmp_path / "journal.jsonl")
    assert device_day.run_part(part, tmp_path, journal, limit_s=120, task_limit_s=5, is_dry=True) == 0
    assert journal.is_complete("planted")
    assert names(tmp_path, "planted") == [
        *("before abort", "abort", "before hang", "hang", "before illegal address", "illegal address"),
        *("before fault", "fault", "last"),
    ]
    results = journal.results()
    assert len({record["pid"] for record in results.of("planted")}) == 5, "a new process after each"
    assert results.failed == {"planted": ["abort", "hang", "illegal address"], "planted checks": ["fault"]}
    assert results.missing["planted"] == {
        "abort": "its process ended by SIGABRT",
        "hang": "its process hung, and was ended after 5 s",
        "illegal address": "RuntimeError: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered",
    }
    before = journal.lines()
    assert device_day.run_part(part, tmp_path, journal, limit_s=120, task_limit_s=5, is_dry=True) == 0
    assert journal.lines() == before, "a second call has nothing to do"
    assert "hang: its process hung" in capfd.readouterr().err


def test_a_second_call_goes_on_after_a_line_that_was_cut_off(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    run = [Task(name, "t", lambda name=name: {"name": name}) for name in ("a", "b", "c")]
    assert run_part.run("p", run[:1], journal, lambda: True) == 0
    text = (tmp_path / "journal.jsonl").read_text().splitlines()
    (tmp_path / "journal.jsonl").write_text("\n".join([*text[:-1], '{"part": "p", "st']) + "\n")
    assert not journal.is_complete("p")
    assert run_part.run("p", run, journal, lambda: True) == 0
    assert [record["name"] for record in journal.results().of("t")] == ["a", "b", "c"]


def test_a_part_whose_process_does_not_start_is_listed(tmp_path, capfd):
    journal = Journal(tmp_path / "journal.jsonl")
    part = Part("planted", "tests.support.planted_tasks:nothing")
    assert device_day.run_part(part, tmp_path, journal, limit_s=60, task_limit_s=60, is_dry=True) == 0
    assert journal.results().missing == {"planted": {"start": "its process ended with code 1 before its first task"}}
    assert "has no attribute 'nothing'" in capfd.readouterr().err
    assert journal.results().failed == {"planted": ["start"]}
    run_part.run("planted", [Task("one", "planted", dict)], journal, lambda: True)
    assert not journal.results().missing, "a later call has started it"
    assert not journal.results().failed


def test_what_cannot_run_is_listed_with_its_reason(tmp_path):
    def fails(error):
        raise error

    journal = Journal(tmp_path / "journal.jsonl")
    tasks = [
        Task("stepped aside", "t", lambda: fails(NotImplementedError("head dim 7 is not served"))),
        Task("broken", "t", lambda: fails(RuntimeError("no memory\nmuch more"))),
    ]
    assert run_part.run("p", tasks, journal, lambda: True) == 0
    assert journal.results().missing == {
        "t": {"stepped aside": "head dim 7 is not served", "broken": "RuntimeError: no memory"}
    }
    assert journal.results().failed == {"t": ["broken"]}
    assert run_part.run("q", tasks, journal, lambda: False) == run_part.SICK
    assert len(names(tmp_path, "q")) == 2


def step(num_rows: int, num_decodes: int, num_tokens: int, collected_s: float, previous_s: float = 0.0) -> StepRecord:
    """Submitted half a second before it was collected."""
    moments = StepMoments(0, 0, submitted_s=collected_s - 0.5, collected_s=collected_s, previous_s=previous_s)
    return StepRecord(Bucket(num_tokens, num_rows, 8), num_rows, num_tokens, num_decodes, moments)


def test_the_median_step_is_one_in_which_all_sequences_decode():
    """Two prompts of 10 tokens; the first sequence decodes alone while the second is computed."""
    first, second = step(1, 0, 10, 1), step(2, 1, 11, 2, 1.75)
    records = [first, second, step(2, 2, 2, 9), step(2, 2, 2, 9.25, 9), step(2, 2, 2, 9.5, 9.25)]
    assert median_prefill(records) == {"prefill_tokens": 11, "prefill_s": 0.25}
    assert median_prefill(records[:1]) == {"prefill_tokens": 0, "prefill_s": None}, "submitted behind no other"
    assert median_step(records, 2) == {"num_steps": 3, "step_s": 0.25, "context": (10 + 11 + 4) / 2}


def verified(num_accepted: list[int], collected_s: float, width: int = 2) -> StepRecord:
    """A pass of 0.5 s in which each sequence has `width` drafts."""
    record = step(len(num_accepted), len(num_accepted), len(num_accepted), collected_s)
    counts = (np.full((len(num_accepted), 1), width), np.array(num_accepted)[:, None])
    return replace(record, bucket=Bucket(8, len(num_accepted), 8, width), drafts=DraftCounts(*counts))


def test_figures_of_passes_are_those_of_the_usual_bucket():
    usual = [verified([2, 0], 1), verified([1, 1], 2)]
    found = pass_figures([step(2, 2, 2, 9), *usual, verified([1, 1], 3, width=1)], 2)
    assert found == {"step_s": 0.5, "drafts_a_pass": 2, "tokens_a_pass": 2}
    with pytest.raises(NotImplementedError, match="no pass had drafts of all sequences"):
        pass_figures(usual, 3)


def test_the_expected_gain_is_the_tokens_of_a_pass_over_its_cost():
    assert expected_gain(0.6, 2, cost=0) == pytest.approx(1 + 0.6 + 0.36)
    assert expected_gain(0.6, 2, cost=0.25) == pytest.approx((1 + 0.6 + 0.36) / (1 + 2 * 0.25))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--dry-run", "--out", "docs/benchmarks"], "not written to docs"),
        (
            ["--only", "checks,speed"],
            "speed: parts are ceilings, first, checks, tune, products, attention, steps, quantized, drafts, throughput",
        ),
        (["--minutes", "0"], "must be a number of minutes above 0"),
    ],
)
def test_mistakes_are_told(argv, message, capsys, monkeypatch):
    monkeypatch.chdir(Path(device_day.__file__).parents[3])
    with pytest.raises(SystemExit) as exit_:
        device_day.main(argv)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_without_a_gpu_it_says_so(capfd, monkeypatch, tmp_path):
    monkeypatch.setattr(device_day, "SCRATCH", tmp_path)
    assert device_day.main(["--out", str(tmp_path)]) == 2
    assert "GPU" in capfd.readouterr().err


def test_help_needs_no_jax(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(SystemExit) as exit_:
        device_day.main(["--help"])
    assert exit_.value.code == 0
    assert "--dry-run" in capsys.readouterr().out
