"""lm-eval's scores of a served SmolLM2 equal those of the same model in transformers.

The tasks of scripts/lm_eval/tasks in float32: 60 questions with four answers each, the perplexity of 20 texts, and 60
answers in free text. Once with lm-eval's `hf` model, once through `jaxserve serve` with an API key: with
`local-completions` and a local tokenizer, several requests at a time; with `local-completions` and the server's
tokenizer, eight prompts per request; and with `local-chat-completions`. The control scores each question with the
log-probabilities of the next one.
"""

import argparse
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checkpoints.sources import resolve
from scripts.proofs.helpers.served_model import served

ROOT = Path(__file__).parents[2]
TASKS = ROOT / "scripts" / "lm_eval" / "tasks"
MODEL, KEY = "smollm2-135m-instruct", "a-key-for-lm-eval"
OPTIONS = ("--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "8", "--max-num-batched-tokens", "256")
TOLERANCE = 0.5  # percentage points of accuracy, percent of perplexity
CONTROL_LIMIT = 45  # percent; the control's accuracy must stay below, chance is 25
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TQDM_DISABLE": "1", "OPENAI_API_KEY": KEY}
OURS = "local-completions", "local-completions, remote tokenizer", "local-chat-completions"


@dataclass
class Scores:
    """Results of one model: metrics by (task, metric), and its response to each document by task."""

    metrics: dict[tuple[str, str], float] = field(default_factory=dict)
    responses: dict[str, list[Any]] = field(default_factory=dict)
    versions: str = ""


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove lm_eval")
    parser.add_argument("--limit", type=int, help="documents per task, fewer for a quick run (default: all)")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        found = evaluate(Path(folder), args.limit)
    lines = [*table(found), "", *(f"- {line}" for line in details(found))]
    if faults := faults_of(found):
        raise SystemExit("\n".join([*lines, "", f"failed: {', '.join(faults)}"]))
    return "\n".join([*lines, "", "All scores are within half a point."])


def evaluate(folder: Path, limit: int | None) -> dict[str, Scores]:
    """Scores by lm-eval model; `hf`, the reference, is the first."""
    oracle = os.environ["ORACLE_PYTHON"]
    subprocess.run(
        [oracle, ROOT / "scripts/lm_eval/transformers_folder.py", resolve(MODEL).weights, folder / "model"], check=True
    )

    def run(model: str, arguments: dict[str, Any], *options: str) -> Scores:
        model_args = ",".join(f"{name}={value}" for name, value in arguments.items())
        command = [oracle, "-m", "lm_eval", "run", "--model", model, "--model_args", model_args, "--include_path", "."]
        limited = [] if limit is None else ["--limit", str(limit)]
        with tempfile.TemporaryDirectory(dir=folder) as out:
            environment = os.environ | OFFLINE | {"HF_HOME": str(folder / "hf-home")}
            environment.pop("PYTHONPATH", None)  # lm-eval runs in its own virtual environment
            command = [*command, *options, *limited, "--log_samples", "--output_path", out]
            subprocess.run(command, cwd=TASKS, env=environment, check=True)
            return read(Path(out))

    own = {"pretrained": folder / "model", "dtype": "float32"}
    on_cpu = "--device", "cpu", "--batch_size", "8"
    scored = "--tasks", "facts,paragraphs"
    chatted = "--tasks", "answers", "--apply_chat_template"
    by_text, by_chat = run("hf", own, *on_cpu, *scored), run("hf", own, *on_cpu, *chatted)
    responses = by_text.responses | by_chat.responses
    found = {"hf": Scores(by_text.metrics | by_chat.metrics, responses, by_text.versions)}
    with served(MODEL, *OPTIONS, key=KEY) as url:
        completions = {"model": MODEL, "base_url": f"{url}/v1/completions", "max_length": 1024}
        tokenizer = {"tokenizer_backend": "huggingface", "tokenizer": folder / "model", "num_concurrent": 4}
        found[OURS[0]] = run("local-completions", completions | tokenizer, *scored)
        remote = {"tokenizer_backend": "remote", "auth_token": KEY}
        found[OURS[1]] = run("local-completions", completions | remote, "--batch_size", "8", *scored)
        chats = {"model": MODEL, "base_url": f"{url}/v1/chat/completions", "num_concurrent": 4}
        found[OURS[2]] = run("local-chat-completions", chats, *chatted)
    return found


def read(folder: Path) -> Scores:
    """The results that lm-eval wrote into `folder`."""
    (file,) = folder.rglob("results_*.json")
    results, scores = json.loads(file.read_text()), Scores()
    scores.versions = f"lm-eval {results['lm_eval_version']}, transformers {results['transformers_version']}"
    for task, values in results["results"].items():
        for name, value in values.items():
            metric, _, rest = name.partition(",")
            if rest and not metric.endswith("_stderr"):
                scores.metrics[task, metric] = value
        (samples,) = folder.rglob(f"samples_{task}_*.jsonl")
        documents = sorted(map(json.loads, samples.read_text().splitlines()), key=lambda each: each["doc_id"])
        scores.responses[task] = [_response(document) for document in documents]
    return scores


def _response(document: dict[str, Any]) -> Any:
    """For a question the right answer and the log-probabilities of all answers; for a text its log-probability; for a
    chat the generated text."""
    responses = [each[0] for each in document["resps"]]
    if "acc" in document:
        return document["doc"]["answer"], [float(logprob) for logprob, _ in responses]
    return responses[0] if "contains" in document else float(responses[0])


def difference(metric: str, ours: float, theirs: float) -> float:
    """Relative difference in percent for perplexities, else the difference of two shares in percentage points."""
    return 100 * abs(ours / theirs - 1 if "perplexity" in metric else ours - theirs)


def table(found: dict[str, Scores]) -> list[str]:
    lines = ["| task | metric | lm-eval model | served | transformers | difference, points |", "|---" * 6 + "|"]
    for name in OURS:
        for (task, metric), value in found[name].metrics.items():
            own = found["hf"].metrics[task, metric]
            apart = difference(metric, value, own)
            lines.append(f"| {task} | {metric} | {name} | {value:.4f} | {own:.4f} | {apart:.3f} |")
    return lines


def details(found: dict[str, Scores]) -> list[str]:
    """The largest differences of the log-probabilities behind the scores, and the control's accuracy."""
    own, lines = found["hf"].responses, [f"{found['hf'].versions}, torch in float32 on the CPU."]
    for name in OURS[:2]:
        responses = found[name].responses
        pairs = zip(responses["facts"], own["facts"], strict=True)
        answers = max(abs(a - b) for ours, theirs in pairs for a, b in zip(ours[1], theirs[1], strict=True))
        texts = max(abs(a - b) for a, b in zip(responses["paragraphs"], own["paragraphs"], strict=True))
        lines.append(f"{name}: log-probabilities differ by at most {answers:.1e} (answers) and {texts:.1e} (texts).")
    equal = sum(a == b for a, b in zip(found[OURS[2]].responses["answers"], own["answers"], strict=True))
    lines.append(f"{OURS[2]}: {equal} of {len(own['answers'])} texts are identical.")
    lines.append(f"Control: with the next question's log-probabilities {control(found):.1f} percent are right.")
    return lines


def control(found: dict[str, Scores]) -> float:
    """Percent of questions answered right by the log-probabilities of the next question's answers."""
    facts = found[OURS[0]].responses["facts"]
    following = [*facts[1:], facts[0]]
    hits = [
        max(range(4), key=other[1].__getitem__) == right for (right, _), other in zip(facts, following, strict=True)
    ]
    return 100 * sum(hits) / len(hits)


def faults_of(found: dict[str, Scores]) -> list[str]:
    faults = []
    for name in OURS:
        for (task, metric), value in found[name].metrics.items():
            if not difference(metric, value, found["hf"].metrics[task, metric]) <= TOLERANCE:
                faults.append(f"{name}: {metric} of {task}")
    if control(found) > CONTROL_LIMIT:
        faults.append(f"the control's accuracy exceeds {CONTROL_LIMIT} percent")
    return faults
