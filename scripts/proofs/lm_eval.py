"""lm-eval's scores of a served SmolLM2 are those of its own transformers model.

The tasks of scripts/lm_eval/tasks in float32: 60 questions with four answers each, the perplexity of 20 texts, and 60
answers in free text. Once by lm-eval's `hf`, once through `jaxserve serve` with a key: by `local-completions` with the
tokenizer of a folder and several requests at a time, by the same with the server's tokenizer and eight prompts a
request, and by `local-chat-completions`. The control scores each question with the numbers of the next one.
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
TOLERANCE = 0.5  # points of accuracy, per cent of perplexity
CONTROL_LIMIT = 45  # per cent of accuracy that the control must stay under; chance is 25
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TQDM_DISABLE": "1", "OPENAI_API_KEY": KEY}
OURS = "local-completions", "local-completions, remote tokenizer", "local-chat-completions"


@dataclass
class Scores:
    """What the runs of one model gave: metrics by (task, metric), and what it said of each document by task."""

    metrics: dict[tuple[str, str], float] = field(default_factory=dict)
    said: dict[str, list[Any]] = field(default_factory=dict)
    versions: str = ""


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove lm_eval")
    parser.add_argument("--limit", type=int, help="documents of each task, for a quick look (default: all)")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        found = evaluate(Path(folder), args.limit)
    lines = [*table(found), "", *(f"- {line}" for line in details(found))]
    if faults := faults_of(found):
        raise SystemExit("\n".join([*lines, "", f"failed: {', '.join(faults)}"]))
    return "\n".join([*lines, "", "All scores are within half a point."])


def evaluate(folder: Path, limit: int | None) -> dict[str, Scores]:
    """The scores by model, transformers' first."""
    oracle = os.environ["ORACLE_PYTHON"]
    subprocess.run(
        [oracle, ROOT / "scripts/lm_eval/transformers_folder.py", resolve(MODEL).weights, folder / "model"], check=True
    )

    def run(model: str, arguments: dict[str, Any], *options: str) -> Scores:
        told = ",".join(f"{name}={value}" for name, value in arguments.items())
        command = [oracle, "-m", "lm_eval", "run", "--model", model, "--model_args", told, "--include_path", "."]
        limited = [] if limit is None else ["--limit", str(limit)]
        with tempfile.TemporaryDirectory(dir=folder) as out:
            environment = os.environ | OFFLINE | {"HF_HOME": str(folder / "hf-home")}
            environment.pop("PYTHONPATH", None)  # it has an environment of its own
            asked = [*command, *options, *limited, "--log_samples", "--output_path", out]
            subprocess.run(asked, cwd=TASKS, env=environment, check=True)
            return read(Path(out))

    own = {"pretrained": folder / "model", "dtype": "float32"}
    on_cpu = "--device", "cpu", "--batch_size", "8"
    scored = "--tasks", "facts,paragraphs"
    chatted = "--tasks", "answers", "--apply_chat_template"
    by_oracle, by_chat = run("hf", own, *on_cpu, *scored), run("hf", own, *on_cpu, *chatted)
    found = {"hf": Scores(by_oracle.metrics | by_chat.metrics, by_oracle.said | by_chat.said, by_oracle.versions)}
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
    """What lm-eval wrote."""
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
        scores.said[task] = [_said(document) for document in documents]
    return scores


def _said(document: dict[str, Any]) -> Any:
    """Of a question its right answer and the log-probabilities of all; of a text its own; of a chat what was said."""
    responses = [each[0] for each in document["resps"]]
    if "acc" in document:
        return document["doc"]["answer"], [float(logprob) for logprob, _ in responses]
    return responses[0] if "contains" in document else float(responses[0])


def difference(metric: str, ours: float, theirs: float) -> float:
    """Points: of a perplexity's relative difference in per cent, else of a share."""
    return 100 * abs(ours / theirs - 1 if "perplexity" in metric else ours - theirs)


def table(found: dict[str, Scores]) -> list[str]:
    lines = ["| task | metric | through | served | transformers | points apart |", "|---" * 6 + "|"]
    for name in OURS:
        for (task, metric), value in found[name].metrics.items():
            own = found["hf"].metrics[task, metric]
            apart = difference(metric, value, own)
            lines.append(f"| {task} | {metric} | {name} | {value:.4f} | {own:.4f} | {apart:.3f} |")
    return lines


def details(found: dict[str, Scores]) -> list[str]:
    """How near the numbers are of which the scores are made."""
    own, lines = found["hf"].said, [f"{found['hf'].versions}, torch in float32 on the processor."]
    for name in OURS[:2]:
        said = found[name].said
        pairs = zip(said["facts"], own["facts"], strict=True)
        answers = max(abs(a - b) for ours, theirs in pairs for a, b in zip(ours[1], theirs[1], strict=True))
        texts = max(abs(a - b) for a, b in zip(said["paragraphs"], own["paragraphs"], strict=True))
        lines.append(f"{name}: log-probabilities of answers at most {answers:.1e} apart, of whole texts {texts:.1e}.")
    equal = sum(a == b for a, b in zip(found[OURS[2]].said["answers"], own["answers"], strict=True))
    lines.append(f"{OURS[2]}: {equal} of {len(own['answers'])} texts are the same, letter by letter.")
    lines.append(f"Control: {control(found):.1f} per cent of the questions are right with the next one's numbers.")
    return lines


def control(found: dict[str, Scores]) -> float:
    """Per cent of questions answered right by the log-probabilities of the next question's answers."""
    facts = found[OURS[0]].said["facts"]
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
    return faults + (["the control, which must fail"] if control(found) > CONTROL_LIMIT else [])
