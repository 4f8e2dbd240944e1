"""A real `jaxserve serve` in a process of its own, for proofs that talk to it."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_LIMIT_S = 600


@contextmanager
def served(model: str, *options: str, key: str) -> Iterator[str]:
    """The address of a server that is ready, on a free port of this machine; it must end well when it is told to."""
    command = [sys.executable, "-m", "jaxserve.cli.main", "serve", model, "--port", "0", *options]
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder, "log")
        with said.open("w") as log:
            process = subprocess.Popen(command, stderr=log, env=os.environ | {"JAXSERVE_API_KEY": key})
        try:
            yield _when_ready(process, said)
            process.send_signal(signal.SIGTERM)
            if process.wait(timeout=60):
                raise RuntimeError(f"the server ended with {process.returncode}:\n{said.read_text()}")
        finally:
            process.kill()
            process.wait()


def _when_ready(process: subprocess.Popen[bytes], said: Path) -> str:
    until_s = time.monotonic() + START_LIMIT_S
    while process.poll() is None and time.monotonic() < until_s:
        time.sleep(0.5)
        found = re.search(r"listening on (http://\S+?);", said.read_text())
        if found and _is_healthy(found[1]):
            return found[1]
    raise RuntimeError(f"the server did not start:\n{said.read_text()}")


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5):
            return True
    except urllib.error.URLError:
        return False
