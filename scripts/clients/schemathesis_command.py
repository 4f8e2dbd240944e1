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
NUM_BRIEF_CASES = 20
MIN_ANSWERED = 0.02  # of the cases of each operation that takes a body: enough reach the engine
RULES = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "ignored_auth",
    "unsupported_method",
    "allow_header_conformance",
)


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
        for method, operation in methods.items():
            label = f"{method.upper()} {path}"
            found = statuses.get(label, Counter())
            is_varied = "requestBody" in operation or "parameters" in operation
            wanted = num_cases if is_varied else 1
            checks.holds(f"cases of {label}", found.total() >= wanted, f"{found.total()} instead of {wanted}")
            if "requestBody" in operation:
                checks.holds(f"answers of {label}", found[200] >= MIN_ANSWERED * found.total(), str(found))
            print(f"  {label}: {dict(sorted(found.items()))}", file=sys.stderr)


def interactions(checks: Checks, num_cases: int) -> Iterator[tuple[str, dict[str, Any], dict[str, Any], list[str]]]:
    """Operation, request, answer and failures of each case."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.ndjson")
        command = [Path(sys.executable).with_name("schemathesis"), "run", f"{checks.url}/openapi.json"]
        command += ["--phases", "examples,coverage,fuzzing", "--max-examples", str(num_cases), "--seed", "1"]
        command += ["--checks", ",".join(RULES), "--continue-on-failure", "--no-shrink", "--workers", "2"]
        command += [
            "--generation-database",
            "none",
            "--generation-with-security-parameters",
            "false",
            "--request-timeout",
            "120",
            "--output-truncate",
            "false",
        ]
        command += ["--header", f"Authorization: Bearer {checks.key}", "--output-sanitize", "false"]
        command += ["--report", "ndjson", "--report-ndjson-path", str(log), "--no-color"]
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
