"""The command line in its own process, as users start it."""

import subprocess
import sys

import pytest

from jaxserve.cli.main import main

# Sizes of the demo model's engine in every test of a command and in docs/recipes.md: its programs are compiled once.
_SIZES = "--max-model-len 256 --max-num-seqs 8 --max-num-batched-tokens 32"
DEMO_SIZES = (*_SIZES.split(), "--buckets", "8 32x8")


def jaxserve(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jaxserve.cli.main", *args]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def check_mistake(args: list[str], message: str) -> None:
    """The command ends with code 2 and prints `message`, without a traceback."""
    done = jaxserve(*args)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def check_mistake_here(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As `check_mistake`, in this process: it starts sooner, and an exception that is no mistake passes through."""
    try:
        code = main(args)
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
