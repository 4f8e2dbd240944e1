"""Greedy tokens and log-probabilities of the real models equal those of transformers in every way of running them.

100 prompts of different lengths x 64 tokens in float32 (tests/goldens/parity-*.npz, made by scripts/goldens/parity.py),
run alone, in a busy batch, in chunks, with preemption, with shuffled pages, with their pages in the prefix cache, and
tensor-parallel. A different token is a tie, not a fault, only where the two largest logits lie within 1e-3 of each
other; the gap is printed. Finished rows are stored in .cache/proofs: an interrupted run continues as long as the
sources that affect tokens are unchanged.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from scripts.prove import digest_of

ROOT = Path(__file__).parents[2]
MODELS = {"smollm2-135m-instruct": 3, "gemma-3-270m": 2}  # name → tensor-parallel size that its heads allow
TIE_GAP = 1e-3
COMMON = {"dtype": "float32", "max_model_len": 1024, "max_num_seqs": 32, "max_num_batched_tokens": 512}
VARIANTS = {
    "busy batch": {},
    "chunks of 64": {"max_chunk_tokens": 64},
    "chunks of 16": {"max_chunk_tokens": 16},
    "chunks of 7": {"max_chunk_tokens": 7},
    "chunks of 1": {"max_chunk_tokens": 1},
    "preempted": {"is_small_pool": True},
    "shuffled pages": {"is_shuffled": True},
    "cached prompts": {"is_cached": True},
    "tensor-parallel": {"is_parallel": True},
    "alone": {"is_alone": True, "max_num_seqs": 1, "max_num_batched_tokens": 128},
}
PROOF_OF_VARIANT = {"preempted": "preemptions", "cached prompts": "cached_tokens"}
"""The figure of a row without which it would have run like another."""


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove parity")
    parser.add_argument("--row", nargs=2, metavar=("MODEL", "VARIANT"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.row:
        print(json.dumps(run_row(*args.row)))
        return ""
    stored = ROOT / ".cache" / "proofs" / f"parity-{state_of_sources()}.json"
    rows = json.loads(stored.read_text()) if stored.exists() else {}
    for model in MODELS:
        for variant in VARIANTS:
            key = f"{model}, {variant}"
            if key not in rows:
                rows[key] = _in_process(model, variant)
                stored.parent.mkdir(parents=True, exist_ok=True)
                stored.write_text(json.dumps(rows))
            print(key, rows[key], file=sys.stderr)
    return _table(rows)


def state_of_sources() -> str:
    """Hash of the files that affect tokens: the packages without text, options and command line, goldens, this file."""
    files = [Path(__file__), *ROOT.glob("pallas_kernels/**/*.py"), *ROOT.glob("checkpoints/**/*.py")]
    for folder in ("core", "kv", "models", "sampling", "scheduler", "runner"):
        files += ROOT.glob(f"jaxserve/{folder}/**/*.py")
    files += [*ROOT.glob("jaxserve/engine/loop/*.py"), *ROOT.glob("tests/goldens/parity-*.npz")]
    inert = {"engine_config.py", "errors.py", "outputs.py"}
    return digest_of(file for file in files if file.name not in inert and file.parent.name != "fake")


def _in_process(model: str, variant: str) -> dict:
    """One row in a separate process, because JAX fixes the number of CPU devices at its initialization."""
    size = MODELS[model] if VARIANTS[variant].get("is_parallel") else 1
    env = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--xla_force_host_platform_device_count={size}"}
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from scripts.proofs import parity; parity.main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, "--row", model, variant]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def run_row(model: str, variant: str) -> dict:
    """Runs all prompts of one model in one variant and compares them with the goldens."""
    return run(model, VARIANTS[variant])[1]


def run(model: str, variant: dict[str, Any]) -> tuple[Any, dict]:
    """The engine and the row. variant: options of the engine, and the names with is_ of `VARIANTS`."""
    from jaxserve import LLM, SamplingParams

    ways = {name for name in variant if name.startswith("is_")}
    options = COMMON | {name: value for name, value in variant.items() if name not in ways}
    options["tensor_parallel_size"] = MODELS[model] if "is_parallel" in ways else 1
    prompts, golden = read_goldens(model)
    if "is_small_pool" in ways:
        options["num_pages"] = {"smollm2-135m-instruct": 200, "gemma-3-270m": 600}[model]
    llm = LLM(model, **options)
    if "is_shuffled" in ways:
        shuffle_pages(llm)
    params = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True, logprobs=0)
    if "is_cached" in ways:
        llm.generate(prompts, SamplingParams(temperature=0, max_tokens=1), use_tqdm=False)
    num_cached, started = llm.stats.num_cached_tokens, time.monotonic()
    is_alone = "is_alone" in ways
    groups = [[p] for p in prompts] if is_alone else [prompts]
    outputs = [out.outputs[0] for group in groups for out in llm.generate(group, params, use_tqdm=not is_alone)]
    row = compare(outputs, golden)
    row["seconds"] = round(time.monotonic() - started, 1)
    row["preemptions"] = llm.stats.num_preemptions
    row["cached_tokens"] = llm.stats.num_cached_tokens - num_cached
    return llm, row


def read_goldens(model: str) -> tuple[list[list[int]], dict[str, np.ndarray]]:
    arrays = dict(np.load(ROOT / "tests" / "goldens" / f"parity-{model}.npz"))
    ends = np.cumsum(arrays["prompt_lens"])[:-1]
    return [p.tolist() for p in np.split(arrays["prompt_ids"], ends)], arrays


def tolerances(golden: dict[str, np.ndarray]) -> tuple[float, float]:
    """(largest, mean) error of log-probabilities that is allowed: 3 times that of transformers in float32.

    The goldens' own are computed in float64. Sums in another order make other errors: a logit of 20 has a resolution of
    1.9e-6 in float32, and the means of the rows lie between 1 and 2 times transformers' 1.5e-6 and 1.1e-6.
    """
    errors = np.abs(golden["float32_logprobs"] - golden["logprobs"])
    return 3 * float(errors.max()), 3 * float(errors.mean())


def shuffle_pages(llm) -> None:
    """Shuffles the free pages, so that page tables are not contiguous."""
    pool = llm.parts.engine.scheduler.state.pool
    np.random.default_rng(1).shuffle(pool.free_pages)  # a view of the pool's own stack
    if (np.diff(pool.free_pages) == -1).mean() > 0.1:
        raise RuntimeError("the free pages are still in order after the shuffle")


def compare(outputs, golden: dict[str, np.ndarray]) -> dict:
    """Number of prompts with all tokens equal, ties with their gaps, faults, errors of log-probabilities."""
    equal, ties, faults, errors = 0, [], [], [0.0]
    for i, output in enumerate(outputs):
        got, wanted = np.array(output.token_ids), golden["tokens"][i]
        if len(got) != len(wanted):
            faults.append({"prompt": i, "token": len(got), "gap": float("nan")})
            continue
        differing = np.flatnonzero(got != wanted)
        end = differing[0] if len(differing) else len(got)
        logprobs = np.array([next(iter(p.values())).logprob for p in output.logprobs[:end]])
        errors.extend(np.abs(logprobs - golden["logprobs"][i, :end]).tolist())
        if not len(differing):
            equal += 1
            continue
        gap = float(golden["gaps"][i, end])
        (ties if gap < TIE_GAP else faults).append({"prompt": i, "token": int(end), "gap": gap})
    return {
        "prompts": len(outputs),
        "equal": equal,
        "ties": ties,
        "faults": faults,
        "logprob_error": max(errors),
        "mean_logprob_error": float(np.mean(errors)),
    }


def _table(rows: dict[str, dict]) -> str:
    titles = (
        "model, variant",
        "prompts",
        "equal",
        "ties (top-2 gap)",
        "faults",
        "log-probability error, largest (allowed)",
        "mean (allowed)",
        "preemptions",
        "cached tokens",
        "s",
    )
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    limits = {model: tolerances(read_goldens(model)[1]) for model in MODELS}
    bad: list[str] = []
    for key, row in rows.items():
        largest, mean = limits[key.partition(",")[0]]
        if row["faults"] or row["logprob_error"] > largest or row["mean_logprob_error"] > mean:
            bad.append(key)
        ties = ", ".join(f"{tie['gap']:.1e}" for tie in row["ties"]) or "–"
        lines.append(
            f"| {key} | {row['prompts']} | {row['equal']} | {ties} | {len(row['faults'])} "
            f"| {row['logprob_error']:.1e} ({largest:.1e}) | {row['mean_logprob_error']:.1e} ({mean:.1e}) "
            f"| {row['preemptions']} | {row['cached_tokens']} | {row['seconds']} |"
        )
    lines += ["", f"Sources {state_of_sources()}, goldens made by transformers 5.23.0 with torch 2.13.0."]
    for variant, figure in PROOF_OF_VARIANT.items():
        bad += [key for key, row in rows.items() if key.endswith(variant) and not row[figure]]
    if bad:
        raise SystemExit("\n".join([*lines, "", f"failed: {', '.join(bad)}"]))
    return "\n".join([*lines, "", "All rows pass."])
