"""Runs one outside client of scripts/clients against a server, and counts its requests by the server's own metrics."""

import json
import os
import re
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import Request, urlopen

from scripts.proofs.helpers.client_environments import NotInstalled, python_of

ROOT = Path(__file__).parents[3]
COUNT = re.compile(r'^http_requests_total\{handler="(.+)",method="(.+)",status="(\d+)"\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True)
class Client:
    """name: of its environment. module: its script in scripts/clients. options: of its server. limit_s: the most that
    a run may take."""

    name: str
    module: str
    options: tuple[str, ...]
    limit_s: float = 600


@dataclass(frozen=True)
class ClientRun:
    """num_operations: routes and methods that the client has used. num_checks: by part of the script. failures: of the
    checks. not_run: the reason if the client could not be installed."""

    name: str
    version: str = "–"
    num_operations: int = 0
    num_requests: int = 0
    num_checks: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    not_run: str = ""


def run(client: Client, url: str, key: str, through: str = "") -> ClientRun:
    """Gives the client the address `through`, a relay to `url`, for a control with few checks; else `url` itself."""
    try:
        python = python_of(client.name)
    except NotInstalled as error:
        return ClientRun(client.name, not_run=str(error))
    before, started_s = requests_by_operation(url, key), time.monotonic()
    extent = "brief" if through else "whole"
    command = [python, "-m", f"scripts.clients.{client.module}", through or url, url, key, extent]
    errors = subprocess.DEVNULL if through else None
    with tempfile.TemporaryDirectory() as home:
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=_environment(home), stdout=subprocess.PIPE, stderr=errors, timeout=client.limit_s
            )
            report = json.loads(done.stdout.splitlines()[-1])
        except subprocess.TimeoutExpired:
            return ClientRun(client.name, failures=[f"took more than {client.limit_s:.0f} s"], seconds=client.limit_s)
        except (IndexError, ValueError):
            return ClientRun(client.name, failures=[f"the script ended with status {done.returncode}"])
    seconds = time.monotonic() - started_s
    answers = requests_by_operation(url, key) - before
    answers -= Counter({(path, method, "200"): num for path, method, num in report["direct"]})
    answers -= Counter({("/metrics", "GET", "200"): 1})  # that of `before`
    operations = {(handler, method) for handler, method, status in answers if status not in ("404", "405")}
    failures = [f"{num} answers with status {each[-1]}" for each, num in answers.items() if each[-1].startswith("5")]
    failures += report["failures"]
    total = answers.total()
    return ClientRun(client.name, report["version"], len(operations), total, report["num_checks"], failures, seconds)


def requests_by_operation(url: str, key: str) -> Counter[tuple[str, str, str]]:
    """The responses that the server has counted, by handler, method and status."""
    request = Request(f"{url}/metrics", headers={"Authorization": f"Bearer {key}"})
    with urlopen(request, timeout=60) as answer:
        found = COUNT.findall(answer.read().decode())
    return Counter({(handler, method, status): round(float(num)) for handler, method, status, num in found})


def _environment(home: str) -> dict[str, str]:
    """Without what would change the client: its user's settings, keys, proxies of others, and other Pythons' paths."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL", "SSL_CERT_FILE")}
    offline = {"HF_HUB_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    return kept | offline | {"HOME": home, "PYTHONDONTWRITEBYTECODE": "1"}
