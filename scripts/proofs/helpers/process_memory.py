"""The growth of another process's anonymous memory, sampled from outside."""

import os
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SAMPLE_PERIOD_S = 0.02


def anonymous_bytes(pid: int) -> int:
    """Anonymous resident memory of a process; 0 when it has just ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)


def peak_growth_bytes(command: list[str], **env: str) -> tuple[int, str]:
    """Runs a command on the CPU; returns the peak of its anonymous memory minus that at the start, and its output.

    The first line of the output, which is not returned, must be the process's `anonymous_bytes` at the start. env:
    variables in addition to this process's.
    """
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), **env}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        start_bytes, peak_bytes = int(process.stdout.readline()), 0
        while process.poll() is None:
            peak_bytes = max(peak_bytes, anonymous_bytes(process.pid))
            time.sleep(SAMPLE_PERIOD_S)
        if process.returncode:
            raise RuntimeError(f"the measured process ended with status {process.returncode}")
        return peak_bytes - start_bytes, process.stdout.read()
