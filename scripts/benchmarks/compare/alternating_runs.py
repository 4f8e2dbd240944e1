"""Runs both engines alternately in separate processes, and measures the CPU share of other processes meanwhile."""

import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Round:
    """Results of both sides, and the share of CPU time that other processes used during each."""

    jaxserve: dict[str, Any]
    transformers: dict[str, Any]
    jaxserve_others_share: float
    transformers_others_share: float


def run_round(spec: dict[str, Any], oracle_python: str, *, is_ours_first: bool, what: str = "") -> Round:
    """Runs one side after the other; alternating `is_ours_first` keeps a warm machine from favoring one side.

    what: prefix of the modules of both sides, "" for workloads, "steps_" for single steps.
    """
    commands = {
        "jaxserve": [sys.executable, "-m", f"scripts.benchmarks.compare.{what}jaxserve_side"],
        "transformers": [oracle_python, f"scripts/benchmarks/compare/{what}transformers_side.py"],
    }
    order = list(commands) if is_ours_first else list(reversed(commands))
    found = {name: _run(commands[name], spec) for name in order}
    (ours, ours_share), (theirs, theirs_share) = found["jaxserve"], found["transformers"]
    return Round(ours, theirs, ours_share, theirs_share)


def _run(command: list[str], spec: dict[str, Any]) -> tuple[dict[str, Any], float]:
    env = os.environ | {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    env.pop("PYTHONPATH", None)  # each side has its own virtual environment
    with tempfile.TemporaryDirectory() as folder:
        spec_file, result_file = Path(folder, "spec.json"), Path(folder, "result.json")
        spec_file.write_text(json.dumps(spec))
        before = _cpu_s(), _children_s()
        if subprocess.run([*command, spec_file, result_file], cwd=ROOT, env=env).returncode:
            raise SystemExit(f"{command[-1]} failed; its output is above")
        (busy_s, total_s), own_s = _since(before[0]), _children_s() - before[1]
        return json.loads(result_file.read_text()), max(0.0, busy_s - own_s) / total_s


def _since(before: tuple[float, float]) -> tuple[float, float]:
    now = _cpu_s()
    return now[0] - before[0], max(now[1] - before[1], 1e-9)


def _cpu_s() -> tuple[float, float]:
    """Busy seconds (stolen time included) and total seconds of all cores; zeros where there is no /proc."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0, 0.0
    ticks = [int(word) for word in stat.read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    rate = os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - idle) / rate, sum(ticks) / rate


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
