"""The command line as users start it: in a process of its own."""

import subprocess
import sys


def jaxserve(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jaxserve.cli.main", *args]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def check_mistake(args: list[str], message: str) -> None:
    """It ends with code 2, and says `message` instead of showing where in the code it noticed."""
    done = jaxserve(*args)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
