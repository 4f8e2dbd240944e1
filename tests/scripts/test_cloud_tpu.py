"""scripts/cloud_tpu runs what its dry run prints, waits for the machine, and never forgets what costs money."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.repository.modules import ROOT

SCRIPT = ROOT / "scripts" / "cloud_tpu"
ASKED = ["--zone", "us-east5-b", "--project", "p", "--spot", "gs://bucket/my model", "--max-model-len", "4096"]
# A gcloud that writes down what it is asked, and tells the next state of its list each time.
GCLOUD = """#!/usr/bin/env bash
printf '%s\\0' "$@" >>"$FAKE/calls"
echo >>"$FAKE/calls"
[[ "$*" != *" describe "* ]] || { head -n1 "$FAKE/states"; sed -i 1d "$FAKE/states"; }
[[ "$*" != *" scp "* ]] || cp "$5" "$FAKE/archive"
[[ "$*" != *" ssh "* ]] || exit "$(cat "$FAKE/ssh")"
"""


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A folder with a gcloud in it."""
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
    printed = run(fake, "--dry-run", *ASKED)
    assert (printed.returncode, calls(fake)) == (0, [])
    done = run(fake, *ASKED)
    assert done.returncode == 0, done.stderr
    said = [shlex.split(line) for line in printed.stdout.splitlines() if line.startswith("gcloud ")]
    ran = [["gcloud", *call] for call in calls(fake) if "describe" not in call]
    assert list(map(without_paths, ran)) == list(map(without_paths, said))
    assert [call[3] for call in ran] == ["queued-resources", "tpu-vm", "tpu-vm"]
    assert all({"--zone=us-east5-b", "--project=p"} <= set(call) for call in calls(fake))
    assert done.stderr.splitlines() == [
        f"jaxserve: {state}" for state in ("WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE")
    ]


def test_the_machine_is_told_the_model_and_its_options_word_by_word(fake):
    run(fake, *ASKED)
    (told,) = [word for word in calls(fake)[-1] if word.startswith("--command=")]
    words = shlex.split(told)
    after = words[words.index("jaxserve/scripts/cloud_tpu_vm") + 1 :]
    assert after == ["gs://bucket/my model", "--max-model-len", "4096", "--tensor-parallel-size=8"]


def test_what_it_sends_can_be_installed(fake):
    run(fake, *ASKED)
    listing = subprocess.run(
        ["tar", "-tzf", fake / "archive"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"pyproject.toml", "README.md", "LICENSE", "requirements/tpu.txt", "scripts/cloud_tpu_vm"} <= set(listing)
    assert {"jaxserve/cli/serve.py", "checkpoints/load.py"} <= set(listing)


def test_a_parallelism_that_is_asked_for_stays(fake):
    run(fake, "--zone", "z", "--accelerator", "v6e-4", "m", "--tensor-parallel-size=2")
    assert "--tensor-parallel-size=4" not in calls(fake)[-1][-1]


@pytest.mark.parametrize(("options", "port"), [([], 8000), (["--port", "9000"], 9000), (["--port=9001"], 9001)])
def test_it_tells_the_port_that_was_asked_for(fake, options, port):
    said = run(fake, "--dry-run", "--zone", "z", "m", *options).stdout
    assert f"-N -L {port}:127.0.0.1:{port}\n  curl http://127.0.0.1:{port}/health" in said
    assert "--spot" not in said


@pytest.mark.parametrize("broken", ["states", "ssh"])
def test_after_a_failure_it_says_how_to_give_the_machine_back(fake, broken):
    (fake / broken).write_text({"states": "PROVISIONING\nFAILED\n", "ssh": "1"}[broken])
    done = run(fake, *ASKED)
    assert done.returncode == 1
    assert "queued-resources delete jaxserve --zone=us-east5-b --project=p --force" in done.stderr
    assert (len([call for call in calls(fake) if "ssh" in call]) == 0) == (broken == "states")


@pytest.mark.parametrize(
    "arguments",
    [["m"], ["--zone"], ["--zone", "z"], ["--zone", "z", "--accelerator", "v6e-16", "m"], ["--zon", "z", "m"]],
)
def test_what_it_does_not_understand_costs_nothing(fake, arguments):
    done = run(fake, *arguments)
    assert (done.returncode, calls(fake)) == (2, [])
    assert done.stderr
