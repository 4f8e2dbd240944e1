"""scripts/device_day runs the GPU benchmark with an available Python, and installs nothing."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.repository.modules import ROOT


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository without an environment."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "device_day", tmp_path / "scripts")
    return tmp_path


def program(file: Path, body: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)


def run(tree: Path, *args: str) -> subprocess.CompletedProcess[str]:
    for name in ("python3", "python3.12", "python3.13", "python3.14"):
        if not (tree / "bin" / name).exists():
            program(tree / "bin" / name, "exit 1")
    environment = {"PATH": f"{tree / 'bin'}:{os.environ['PATH']}"}
    command = [str(tree / "scripts" / "device_day"), *args]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=30)


def test_help_needs_no_python(tree):
    found = run(tree, "--only", "checks", "--help")
    assert found.returncode == 0
    assert "--out DIR" in found.stdout


def test_the_environment_of_the_repository_comes_first(tree):
    program(tree / ".venv" / "bin" / "python", 'echo "$@"; exit 3')
    found = run(tree, "--only", "checks", "--out", "results")
    assert found.returncode == 3, "the benchmark's exit code"
    expected = f"-m scripts.benchmarks.gpu.device_day --only checks --out results --out {tree / 'results'}"
    assert found.stdout.strip() == expected


def test_else_a_python_that_has_jax_with_cuda_is_used(tree):
    program(tree / "bin" / "python3.13", 'test "$1" = -c || echo "3.13: $@"')
    found = run(tree)
    assert (found.returncode, found.stdout.strip()) == (0, "3.13: -m scripts.benchmarks.gpu.device_day")


def test_without_one_it_reports_what_to_install(tree):
    found = run(tree)
    assert found.returncode == 2
    assert "pip install -e '.[cuda]'" in found.stderr
