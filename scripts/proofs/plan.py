"""`jaxserve plan` compiles Llama 3 ahead of time for absent TPUs and GPUs, and predicts the memory of a local engine.

Every program updates the pool in place and makes no other array of its shape; its temporaries stay under 5 % of the
pool, none takes longer than 150 s to compile, and no decode program copies a weight. For each engine the smallest and
largest decode program and the largest mixed one are compiled, and all programs that copy pages or change slots.

On the local CPU, an engine of SmolLM2-135M with a pool of 3 GiB runs in a separate process while this one samples that
process's anonymous memory (RssAnon): the planned weights, pool, slots, temporaries and programs are within 10 % of the
peak minus the memory before the engine is built. The rest is the tokenizer, traced Python programs and what compiling
leaves behind.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.proofs.helpers.process_memory import anonymous_bytes, peak_growth_bytes

ROOT = Path(__file__).resolve().parents[2]
TARGETS = {
    "llama-3-8b": (
        ["--topology", "v5e:2x2"],
        ["--topology", "v6e:2x2"],
        ["--topology", "tpu7x:2x2x1"],
        ["--device", "h200"],
    ),
    "llama-3-70b": (
        ["--topology", "v5e:4x4"],
        ["--topology", "v6e:2x4"],
        ["--topology", "tpu7x:2x2x1"],
        ["--device", "h200", "--tensor-parallel-size", "2"],
    ),
}
BUCKETS = "8 256 2048x256"
MAX_TEMPORARIES = 0.05
"""Share of the pool."""
MAX_COMPILE_S = 150
"""Of a program."""
LOCAL_MODEL = "smollm2-135m-instruct"
LOCAL_OPTIONS: dict[str, Any] = {"kv_cache_memory_bytes": 3 * 2**30, "max_num_seqs": 32, "max_num_batched_tokens": 512}
MAX_ERROR = 0.10
PROMPT_LEN, OUTPUT_LEN = 400, 40


def plan(model: str, *options: str) -> dict[str, Any]:
    """The JSON output of the command. Raises AssertionError where the command fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        command = [sys.executable, "-m", "jaxserve.cli.main", "plan", model, *options, "--json", str(path)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise AssertionError(done.stdout or f"jaxserve plan ended with {done.returncode}")
        return json.loads(path.read_text())


def target_row(model: str, options: list[str]) -> str:
    found = plan(model, *options, "--buckets", BUCKETS)
    memory = found["memory"]
    share = memory["step_bytes"] / memory["pool_bytes"]
    if share >= MAX_TEMPORARIES:
        raise AssertionError(f"{model} {options}: temporaries take {share:.1%} of the pool")
    decode = max((s for s in found["steps"] if s["num_tokens"] == s["num_rows"]), key=lambda s: s["num_rows"])
    floor, seconds = decode["floor"], [program["compile_s"] for program in found["programs"]]
    if max(seconds) > MAX_COMPILE_S:
        raise AssertionError(f"{model} {options}: a program took {max(seconds):.0f} s to compile")
    (program,) = (program for program in found["programs"] if program["name"] == decode["name"])
    cells = [
        model,
        f"{found['num_devices']} × {found['target']}",
        *(f"{memory[name] / 1e9:.2f}" for name in ("weight_bytes", "pool_bytes")),
        f"{memory['step_bytes'] / 1e6:,.0f} ({share:.1%})",
        *decode_cells(program),
        f"{decode['num_rows']} × {decode['context']:,}",
        *(f"{floor[name] * 1e3:.1f}" for name in ("bandwidth_s", "compute_s")),
        f"{decode['tokens_per_s']:,.0f}",
        f"{sum(seconds):.0f} ({max(seconds):.0f})",
    ]
    return f"| {' | '.join(cells)} |"


def decode_cells(program: dict[str, Any]) -> list[str]:
    """Temporaries of a decode program, and the traffic and collectives (number, bytes) of one of its rounds."""
    parts = program["collectives"]
    num_bytes = sum(part["num_bytes"] for part in parts)
    return [
        f"{program['temporary_bytes'] / 1e6:,.0f}",
        f"{program['traffic_bytes'] / 1e9:.2f}",
        f"{sum(part['count'] for part in parts)}, {num_bytes / 1e6:,.0f} MB" if parts else "none",
    ]


def run_engine(options: str) -> None:
    """Body of the measured process: prints its memory before the engine is built, then generates with all slots."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jaxserve import LLM, SamplingParams

    for name in ("gguf", "tokenizers"):  # imported on demand later; here, as part of the memory at the start
        importlib.import_module(name)
    jax.block_until_ready(jnp.zeros(8))
    print(anonymous_bytes(os.getpid()), flush=True)
    llm = LLM(LOCAL_MODEL, **json.loads(options))
    vocab_size = llm.parts.model.vocab_size
    prompts = np.random.default_rng(0).integers(0, vocab_size, (LOCAL_OPTIONS["max_num_seqs"], PROMPT_LEN)).tolist()
    llm.generate(prompts, SamplingParams(max_tokens=OUTPUT_LEN, ignore_eos=True, detokenize=False), use_tqdm=False)


def peak_bytes_of(options: dict[str, Any]) -> int:
    """Peak of the anonymous memory of the engine's process minus its memory at the start, in bytes."""
    code = "import sys; from scripts.proofs import plan; plan.run_engine(*sys.argv[1:])"
    return peak_growth_bytes([sys.executable, "-c", code, json.dumps(options)])[0]


def local_table() -> str:
    flags = [word for name, value in LOCAL_OPTIONS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    memory = plan(LOCAL_MODEL, *flags)["memory"]
    taken = peak_bytes_of(LOCAL_OPTIONS)
    error = memory["total_bytes"] / taken - 1
    rows = {
        "weights": memory["weight_bytes"],
        "pool": memory["pool_bytes"],
        "slots": memory["slot_bytes"],
        "temporaries of the largest program": memory["step_bytes"],
        "programs": memory["code_bytes"],
        "predicted": memory["total_bytes"],
        "peak RssAnon minus start": taken,
    }
    table = "\n".join(f"| {name} | {count / 1e6:,.0f} MB |" for name, count in rows.items())
    if memory["pool_bytes"] < 2 * 10**9 or abs(error) > MAX_ERROR:
        raise AssertionError(f"{table}\nerror of the prediction {error:+.1%}, bound ±{MAX_ERROR:.0%}")
    return f"| {LOCAL_MODEL} | |\n| --- | --- |\n{table}\n| difference | {error:+.1%} (bound ±{MAX_ERROR:.0%}) |"


def main(args: list[str]) -> str:
    """Both tables. Raises AssertionError where a bound does not hold."""
    parser = argparse.ArgumentParser(prog="scripts/prove plan", description=__doc__)
    parser.parse_args(args)
    columns = (
        "model",
        "devices",
        "weights, GB",
        "pool, GB",
        "temporaries, MB (of the pool)",
        "temporaries of decoding, MB",
        "traffic of a decode round, GB",
        "collectives of a decode round",
        "rows × context",
        "memory floor, ms",
        "compute floor, ms",
        "tokens/s at the floor",
        "compile time, s (of a program)",
    )
    rows = [target_row(model, options) for model, targets in TARGETS.items() for options in targets]
    header = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    notes = (
        "Sizes are per device; temporaries are those of the largest program, and of the largest decode program; "
        "traffic is what a round reads and writes, without the pool's pages that attention reads; collectives are "
        "counted by the bytes of their results on one device. In all rows the pool is aliased and no other array of "
        "its shape is made. Floors count weights and KV once, and the operations of matrices and attention, at the "
        "vendors' peak rates."
    )
    return "\n".join([local_table(), "", *header, *rows, "", notes])
