"""`jaxserve batch` as a process that is killed and run again."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BATCH = (sys.executable, "-m", "jaxserve.cli.main", "batch")
FAKE = (sys.executable, "-m", "tests.support.processes.fake_batch")  # and a number of lines after which it hangs


def start(source: Path, output: Path, *options: str, command: tuple[str, ...] = BATCH) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*command, str(source), str(output), "--quiet", *options])


def run(source: Path, output: Path, *options: str) -> None:
    """A complete run. Raises if it fails."""
    with start(source, output, *options) as process:
        code = process.wait()
    if code:
        raise RuntimeError(f"jaxserve batch has ended with {code}")


def kill_at(num_lines: int, source: Path, output: Path, *options: str, command: tuple[str, ...] = BATCH) -> int:
    """Kill a run (signal 9) once it has written `num_lines` lines; returns how many complete lines it leaves."""
    with start(source, output, *options, command=command) as process:
        while num_whole(output) < num_lines:
            if process.poll() is not None:
                raise RuntimeError(f"jaxserve batch has ended with {process.returncode} before it was killed")
            time.sleep(0.005)
        process.kill()
    return num_whole(output)


def num_whole(output: Path) -> int:
    return output.read_bytes().count(b"\n") if output.exists() else 0


def written(path: Path, bodies: list[dict[str, Any]], url: Callable[[int], str]) -> Path:
    """A batch file of these bodies, with ids `r0`, `r1`, …"""
    lines = [{"custom_id": f"r{i}", "method": "POST", "url": url(i), "body": body} for i, body in enumerate(bodies)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def answers(output: Path) -> dict[str, Any]:
    """What each line was answered, but for the moment and what the prefix cache knew. Raises where one is answered
    twice."""
    found: dict[str, Any] = {}
    for line in output.read_text().splitlines():
        result = json.loads(line)
        if result["custom_id"] in found:
            raise AssertionError(f"{result['custom_id']} is answered twice")
        body = result["response"]["body"]
        body.pop("created", None)
        body.get("usage", {}).pop("prompt_tokens_details", None)
        found[result["custom_id"]] = body
    return found
