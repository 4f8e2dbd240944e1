"""scripts/cloud_tpu runs the commands that its dry run prints, waits for the machine, and prints how to delete it."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.repository.modules import ROOT

SCRIPT = ROOT / "scripts" / "cloud_tpu"
ARGUMENTS = ["--zone", "us-east5-b", "--project", "p", "--spot", "gs://bucket/my model", "--max-model-len", "4096"]
# A gcloud that records its calls and returns the next state of a list at each `describe`.
GCLOUD = """#!/usr/bin/env bash
printf '%s\\0' "$@" >>"$FAKE/calls"
echo >>"$FAKE/calls"
[[ "$*" != *" describe "* ]] || { head -n1 "$FAKE/states"; sed -i 1d "$FAKE/states"; }
[[ "$*" != *" scp "* ]] || cp "$5" "$FAKE/archive"
[[ "$*" != *" ssh "* ]] || exit "$(cat "$FAKE/ssh")"
"""


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A folder with the fake gcloud."""
    program = tmp_path / "gcloud"
    program.write_text(GCLOUD)
    program.chmod(0o755)
    (tmp_path / "ssh").write_text("0")
    (tmp_path / "states").write_text("WAITING_FOR_RESOURCES\nPROVISIONING\nACTIVE\n")
    return tmp_path


def run(fake: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PATH": f"{fake}:{os.environ['PATH']}", "FAKE": str(fake), "POLL_S": "0"}
    return subprocess.run([SCRIPT, *arguments], env=environment, capture_output=True, text=True)


def calls(fake: Path) -> list[list[str]]:
    lines = (fake / "calls").read_text().split("\0\n")[:-1] if (fake / "calls").exists() else []
    return [line.split("\0") for line in lines]


def without_paths(words: list[str]) -> list[str]:
    return ["ARCHIVE" if word.endswith("jaxserve.tar.gz") and word.startswith("/") else word for word in words]


def test_it_runs_what_the_dry_run_prints(fake):
    printed = run(fake, "--dry-run", *ARGUMENTS)
    assert (printed.returncode, calls(fake)) == (0, [])
    done = run(fake, *ARGUMENTS)
    assert done.returncode == 0, done.stderr
    printed_calls = [shlex.split(line) for line in printed.stdout.splitlines() if line.startswith("gcloud ")]
    ran = [["gcloud", *call] for call in calls(fake) if "describe" not in call]
    assert list(map(without_paths, ran)) == list(map(without_paths, printed_calls))
    assert [call[3] for call in ran] == ["queued-resources", "tpu-vm", "tpu-vm"]
    assert all({"--zone=us-east5-b", "--project=p"} <= set(call) for call in calls(fake))
    assert done.stderr.splitlines() == [
        f"jaxserve: {state}" for state in ("WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE")
    ]


def test_the_model_and_its_options_reach_the_machine_unchanged(fake):
    run(fake, *ARGUMENTS)
    (command,) = [word for word in calls(fake)[-1] if word.startswith("--command=")]
    words = shlex.split(command)
    after = words[words.index("jaxserve/scripts/cloud_tpu_vm") + 1 :]
    assert after == ["gs://bucket/my model", "--max-model-len", "4096", "--tensor-parallel-size=8"]


def test_the_archive_can_be_installed(fake):
    run(fake, *ARGUMENTS)
    listing = subprocess.run(
        ["tar", "-tzf", fake / "archive"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"pyproject.toml", "README.md", "LICENSE", "requirements/tpu.txt", "scripts/cloud_tpu_vm"} <= set(listing)
    assert {"jaxserve/cli/serve.py", "checkpoints/load.py"} <= set(listing)


def test_a_given_tensor_parallel_size_is_kept(fake):
    run(fake, "--zone", "z", "--accelerator", "v6e-4", "m", "--tensor-parallel-size=2")
    assert "--tensor-parallel-size=4" not in calls(fake)[-1][-1]


@pytest.mark.parametrize(("options", "port"), [([], 8000), (["--port", "9000"], 9000), (["--port=9001"], 9001)])
def test_the_printed_commands_use_the_given_port(fake, options, port):
    printed = run(fake, "--dry-run", "--zone", "z", "m", *options).stdout
    assert f"-N -L {port}:127.0.0.1:{port}\n  curl http://127.0.0.1:{port}/health" in printed
    assert "--spot" not in printed


@pytest.mark.parametrize("broken", ["states", "ssh"])
def test_after_a_failure_it_prints_how_to_delete_the_machine(fake, broken):
    (fake / broken).write_text({"states": "PROVISIONING\nFAILED\n", "ssh": "1"}[broken])
    done = run(fake, *ARGUMENTS)
    assert done.returncode == 1
    assert "queued-resources delete jaxserve --zone=us-east5-b --project=p --force" in done.stderr
    assert (len([call for call in calls(fake) if "ssh" in call]) == 0) == (broken == "states")


@pytest.mark.parametrize(
    "arguments",
    [["m"], ["--zone"], ["--zone", "z"], ["--zone", "z", "--accelerator", "v6e-16", "m"], ["--zon", "z", "m"]],
)
def test_wrong_arguments_call_nothing(fake, arguments):
    done = run(fake, *arguments)
    assert (done.returncode, calls(fake)) == (2, [])
    assert done.stderr
