"""Scores of continuations equal those of transformers, and cost a fraction of one call of `generate` per pair.

Accuracy: 200 pairs per model in float32, 50 contexts of 60 to 200 tokens with 4 continuations of 2 to 12 tokens
(tests/goldens/score-*.npz, made by scripts/goldens/score.py). Speed: the same pairs on SmolLM2 with the engine's
default options and all shapes compiled in advance: first one call of `generate` per pair, with one token and
`prompt_logprobs=0`, then one such call for all pairs, then `score`.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
MODELS = ("smollm2-135m-instruct", "gemma-3-270m")
TOLERANCE = 1e-3
TIE_GAP = 1e-3  # within this distance of the largest logit, a token may or may not count as greedy
SPEED_MODEL, WANTED_SPEEDUP = "smollm2-135m-instruct", 5
OPTIONS = {"dtype": "float32", "max_model_len": 512, "max_num_seqs": 32, "max_num_batched_tokens": 512}
CHOICES = 4  # continuations of each context

Pair = tuple[list[int], list[int]]


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove score")
    parser.add_argument("--pairs", type=int, default=200, help="pairs to score, fewer for a quick run (default: 200)")
    args = parser.parse_args(argv)
    lines = ["| model | pairs | tokens | log-probability error | wrong greedy flags |", "|---" * 5 + "|"]
    bad = []
    for model in MODELS:
        row = accuracy(model, args.pairs)
        print(model, row, file=sys.stderr)
        lines.append(f"| {model} | {row['pairs']} | {row['tokens']} | {row['error']:.1e} | {len(row['faults'])} |")
        if row["error"] > TOLERANCE or row["faults"]:
            bad.append(model)
    seconds, num_tokens = speed(args.pairs)
    slowest = seconds["generate, one call per pair"]
    lines += ["", "| method | s | times faster | tokens computed |", "|---" * 4 + "|"]
    for name, took in seconds.items():
        lines.append(f"| {name} | {took:.2f} | {slowest / took:.1f} | {num_tokens[name]} |")
    if slowest / seconds["score"] < WANTED_SPEEDUP:
        bad.append(f"score is less than {WANTED_SPEEDUP} times faster")
    lines += ["", f"{args.pairs} pairs; goldens made by transformers 5.23.0 with torch 2.13.0 in float32."]
    if bad:
        raise SystemExit("\n".join([*lines, "", f"failed: {', '.join(bad)}"]))
    return "\n".join([*lines, "", "All rows pass."])


def read_goldens(model: str) -> tuple[list[Pair], list[np.ndarray], list[np.ndarray]]:
    """Pairs; per pair the log-probabilities of its continuation, and the distances of its logits from the largest."""
    arrays = np.load(ROOT / "tests" / "goldens" / f"score-{model}.npz")
    contexts = np.split(arrays["context_ids"], np.cumsum(arrays["context_lens"])[:-1])
    ends = np.cumsum(arrays["continuation_lens"])[:-1]
    continuations, logprobs, gaps = (np.split(arrays[key], ends) for key in ("continuation_ids", "logprobs", "gaps"))
    pairs = [(contexts[i // CHOICES].tolist(), ids.tolist()) for i, ids in enumerate(continuations)]
    return pairs, logprobs, gaps


def compare(outputs, logprobs: list[np.ndarray], gaps: list[np.ndarray]) -> dict:
    """The largest log-probability difference, and the pairs with a wrong greedy flag, ties excepted."""
    errors = [np.abs(np.array(out.token_logprobs) - own).max() for out, own in zip(outputs, logprobs, strict=True)]
    # Wrong: greedy although another token is likelier by more than a tie, or not greedy although all gaps are 0.
    faults = [
        i
        for i, (out, gap) in enumerate(zip(outputs, gaps, strict=True))
        if (out.is_greedy and gap.max() > TIE_GAP) or (not out.is_greedy and gap.max() == 0)
    ]
    return {"pairs": len(outputs), "tokens": sum(map(len, logprobs)), "error": float(max(errors)), "faults": faults}


def accuracy(model: str, count: int) -> dict:
    from jaxserve import LLM

    pairs, logprobs, gaps = read_goldens(model)
    return compare(LLM(model, **OPTIONS).score(pairs[:count]), logprobs[:count], gaps[:count])


def speed(count: int) -> tuple[dict[str, float], dict[str, int]]:
    """Seconds and computed tokens of each method."""
    from jaxserve import LLM, SamplingParams

    llm = LLM(SPEED_MODEL, max_model_len=1024)
    llm.warm_up(use_tqdm=False)
    pairs = read_goldens(SPEED_MODEL)[0][:count]
    prompts = [context + continuation for context, continuation in pairs]
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    methods: dict[str, tuple[int, Callable[[], object]]] = {
        "generate, one call per pair": (1, lambda: [llm.generate([p], params, use_tqdm=False) for p in prompts]),
        "generate, one call": (3, lambda: llm.generate(prompts, params, use_tqdm=False)),
        "score": (3, lambda: llm.score(pairs, use_tqdm=False)),
    }
    seconds, num_tokens = {}, {}
    for name, (repeats, run) in methods.items():
        llm.generate(prompts[:2], params, use_tqdm=False)
        with counted(llm) as steps:
            seconds[name] = statistics.median(timed(run) for _ in range(repeats))
        num_tokens[name] = sum(steps) // repeats
        print(name, f"{seconds[name]:.2f} s", file=sys.stderr)
    return seconds, num_tokens


def timed(run: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    run()
    return time.perf_counter() - started_s


@contextmanager
def counted(llm) -> Iterator[list[int]]:
    """Yields a list to which the number of tokens of each step is appended."""
    engine, steps = llm.parts.engine, []
    engine.observer = lambda record: steps.append(record.num_tokens)
    try:
        yield steps
    finally:
        engine.observer = None
