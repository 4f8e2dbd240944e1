"""The command `llm`, with the server in its file of OpenAI-compatible models."""

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from scripts.clients.checks import MODEL, Checks, main

QUESTION, SYSTEM, PROMPT = "Name three colors.", "Answer briefly.", "The capital of France is"
OPTIONS = ("-o", "temperature", "0", "-o", "max_tokens", "16")


def llm(folder: Path, *args: str) -> str:
    command = [Path(sys.executable).with_name("llm"), *args]
    env = os.environ | {"LLM_USER_PATH": str(folder)}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"llm {args[0]}: {done.stderr[-500:]}")
    return done.stdout.removesuffix("\n")


def commands(checks: Checks) -> None:
    """Prompts with and without streaming, with a system prompt, a continued conversation, completions and the log."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        common = {"model_name": MODEL, "api_base": f"{checks.url}/v1", "api_key_name": "served"}
        models = [{"model_id": "served", **common}, {"model_id": "text", "completion": True, **common}]
        (folder / "extra-openai-models.yaml").write_text(json.dumps(models))  # JSON is YAML
        llm(folder, "keys", "set", "served", "--value", checks.key)
        asked = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
        (wanted,) = checks.direct_chats([asked], max_tokens=16)
        found = llm(folder, "-m", "served", "-s", SYSTEM, *OPTIONS, QUESTION)
        checks.equal("streamed text", found, wanted)
        checks.equal("text", llm(folder, "-m", "served", "--no-stream", "-s", SYSTEM, *OPTIONS, QUESTION), wanted)
        more = [*asked, {"role": "assistant", "content": wanted}, {"role": "user", "content": "And three more?"}]
        followed = llm(folder, "-m", "served", "-c", *OPTIONS, "And three more?")
        checks.equal("continued conversation", followed, checks.direct_chats([more], max_tokens=16)[0])
        text = llm(folder, "-m", "text", *OPTIONS, PROMPT)
        checks.equal("completion", text, checks.direct_texts([PROMPT], max_tokens=16)[0])
        log = json.loads(llm(folder, "logs", "--json", "-n", "0"))
        counted = [each["output_tokens"] for each in log if each["model"] == "served"]
        checks.equal("output tokens in the log", counted, [16] * 3)


if __name__ == "__main__":
    main(version("llm"), commands)
