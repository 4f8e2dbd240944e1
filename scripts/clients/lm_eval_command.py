"""The command `lm-eval` with local-completions and local-chat-completions, on tasks of scripts/lm_eval."""

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scripts.clients.checks import MODEL, Checks, main

TASKS = Path(__file__).parents[1] / "lm_eval" / "tasks"
NUM_DOCUMENTS = 8


def documents(checks: Checks, model: str, path: str, task: str, *options: str) -> list[dict[str, Any]]:
    """The documents of a task, each with the prompts sent and what the answers were read as."""
    arguments = f"model={MODEL},base_url={checks.url}{path},num_concurrent=4,max_retries=1"
    with tempfile.TemporaryDirectory() as folder:
        command = [Path(sys.executable).with_name("lm_eval"), "run", "--model", model, "--model_args", arguments]
        command += ["--tasks", task, "--include_path", ".", "--limit", str(NUM_DOCUMENTS), *options]
        command += ["--log_samples", "--output_path", folder]
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": folder, "TQDM_DISABLE": "1"}
        env = os.environ | offline | {"OPENAI_API_KEY": checks.key}
        done = subprocess.run(command, cwd=TASKS, env=env, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise RuntimeError(f"lm-eval: {done.stderr[-800:]}")
        (samples,) = Path(folder).rglob(f"samples_{task}_*.jsonl")
        return [json.loads(line) for line in samples.read_text().splitlines()]


def scores(checks: Checks) -> None:
    """Log-probabilities of the answers to questions, with the server's tokenizer."""
    remote = f"tokenizer_backend=remote,auth_token={checks.key}"
    found = documents(checks, "local-completions", "/v1/completions", "facts", "--model_args", remote)
    checks.equal("number of documents", len(found), NUM_DOCUMENTS)
    for document in found:
        for asked, ((logprob, _),) in zip(document["arguments"].values(), document["resps"], strict=True):
            wanted = direct_score(checks, asked["arg_0"], asked["arg_1"])
            checks.holds("log-probability", abs(float(logprob) - wanted) < 1e-4, f"{logprob} instead of {wanted}")


def direct_score(checks: Checks, context: str, continuation: str) -> float:
    context_len = checks.direct("/tokenize", prompt=context)["count"]
    answer = checks.direct("/v1/completions", prompt=context + continuation, max_tokens=0, echo=True, logprobs=1)
    return sum(answer["choices"][0]["logprobs"]["token_logprobs"][context_len:])


def texts(checks: Checks) -> None:
    """Generated answers to questions, as chats."""
    found = documents(checks, "local-chat-completions", "/v1/chat/completions", "answers", "--apply_chat_template")
    chats = [json.loads(each["arguments"]["gen_args_0"]["arg_0"][0]) for each in found]
    wanted = checks.direct_chats(chats, max_tokens=16, stop=["\n\n"])
    checks.equal("texts", [each["resps"][0][0] for each in found], wanted)


if __name__ == "__main__":
    main(version("lm_eval"), texts, scores)
