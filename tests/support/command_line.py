"""The command line as users start it: in a process of its own."""

import os
import subprocess
import sys

QUICK_EMITTERS = "--xla_backend_extra_options=xla_cpu_disable_new_fusion_emitters"
"""For the tests' own processes (`conftest`); users' programs are compiled without it."""


def jaxserve(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jaxserve.cli.main", *args]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, env=users_environment())


def users_environment() -> dict[str, str]:
    """XLA as it comes, but for the number of devices."""
    return os.environ | {"XLA_FLAGS": os.environ["XLA_FLAGS"].replace(QUICK_EMITTERS, "")}


def check_mistake(args: list[str], message: str) -> None:
    """It ends with code 2, and says `message` instead of showing where in the code it noticed."""
    done = jaxserve(*args)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
