"""The fuzzer schemathesis, which makes requests of /openapi.json and compares the answers with it."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scripts.clients.checks import Checks, main

ROOT = Path(__file__).parents[2]
NUM_CASES = 500  # of each operation that takes a body or parameters
BRIEF_PATHS = ("/v1/chat/completions", "/v1/completions")  # of a control, with fewer cases
NUM_BRIEF_CASES = 20
MIN_ANSWERED = 10  # of each operation that takes a body: not all end at validation
RULES = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "ignored_auth",
    "unsupported_method",
)

OPTIONS = (
    "--phases examples,coverage,fuzzing --seed 1 --workers 2 --continue-on-failure --no-shrink --request-timeout 120 "
    "--generation-database none --generation-with-security-parameters false --report ndjson --output-sanitize false "
    "--output-truncate false --no-color"
).split()


def fuzz(checks: Checks) -> None:
    """500 cases of each operation: no 5xx, and each status, media type, header and body as /openapi.json says."""
    operations = checks.direct("/openapi.json")["paths"]
    num_cases = NUM_BRIEF_CASES if checks.is_brief else NUM_CASES
    statuses: dict[str, Counter[int]] = {}
    for label, case, interaction, failed in interactions(checks, num_cases):
        status = (interaction.get("response") or {}).get("status_code", 0)
        statuses.setdefault(label, Counter())[status] += 1
        told = f"{case['method']} {case['path']} {str(case.get('body'))[:200]}: status {status}: {'; '.join(failed)}"
        checks.holds(label, not failed and 0 < status < 500, told)
    for path, methods in operations.items():
        if checks.is_brief and path not in BRIEF_PATHS:
            continue
        for method, operation in methods.items():
            label = f"{method.upper()} {path}"
            found = statuses.get(label, Counter())
            is_varied = "requestBody" in operation or "parameters" in operation
            wanted = num_cases if is_varied else 1
            checks.holds(f"cases of {label}", found.total() >= wanted, f"{found.total()} instead of {wanted}")
            if "requestBody" in operation and not checks.is_brief:
                checks.holds(f"answers of {label}", found[200] >= MIN_ANSWERED, str(found))
            print(f"  {label}: {dict(sorted(found.items()))}", file=sys.stderr)


def interactions(checks: Checks, num_cases: int) -> Iterator[tuple[str, dict[str, Any], dict[str, Any], list[str]]]:
    """Operation, request, answer and failures of each case."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.ndjson")
        command = [Path(sys.executable).with_name("schemathesis"), "run", f"{checks.url}/openapi.json", *OPTIONS]
        command += ["--checks", ",".join(RULES), "--max-examples", str(num_cases), "--report-ndjson-path", str(log)]
        command += ["--header", f"Authorization: Bearer {checks.key}"]
        if checks.is_brief:
            command += [word for path in BRIEF_PATHS for word in ("--include-path", path)]
        env = os.environ | {"SCHEMATHESIS_HOOKS": "scripts.clients.schemathesis_hooks", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        if done.returncode not in (0, 1) or not log.exists():
            raise RuntimeError(f"schemathesis: {(done.stderr or done.stdout)[-800:]}")
        for line in log.open():
            recorder = json.loads(line).get("ScenarioFinished", {}).get("recorder", {})
            for name, interaction in recorder.get("interactions", {}).items():
                failed = [
                    re.sub(r"\s+", " ", str(check.get("failure") or check["name"]))
                    for check in recorder.get("checks", {}).get(name, [])
                    if check["status"] == "failure"
                ]
                yield recorder["label"], recorder["cases"][name]["value"], interaction, failed


if __name__ == "__main__":
    main(version("schemathesis"), fuzz)
