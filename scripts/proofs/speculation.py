"""Drafts change no token in any way of running them, and pay where a text repeats itself.

SmolLM2, n-gram drafts in every step that may have them, 100 prompts x 64 tokens in float32, greedy and at temperature
0.8, against plain decoding of the same engine options. Buckets round differently in their last bits, so once in some
ten thousand tokens a random number lies between the two roundings of a boundary. Where a text differs, its first other
token is therefore drawn again from the logits of its position with small random errors: it is a *tie* if both tokens
are drawn so (`helpers/draw_ties.py`). A control counts positions of equal texts at which more than one token is drawn.

Then, in bfloat16 and with drafts where they are expected to pay, in turns with plain multi-step decoding: a text to be
copied, prompts that do not suit, and a batch of 32. Rows are stored in .cache/proofs: an interrupted run continues as
long as the sources that affect them are unchanged.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from scripts.proofs.helpers.draft_speeds import speeds
from scripts.proofs.helpers.draw_ties import TieCheck
from scripts.proofs.parity import read_goldens
from scripts.prove import digest_of

ROOT = Path(__file__).parents[2]
MODEL = "smollm2-135m-instruct"
DRAFTS = {"method": "ngram", "num_speculative_tokens": 4}
TREES = {"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_min": 1, "prompt_lookup_branches": 3}
COMMON = {"dtype": "float32", "max_model_len": 1024, "max_num_seqs": 16, "max_num_batched_tokens": 512}
SAMPLERS = {"greedy": {"temperature": 0.0}, "temperature 0.8": {"temperature": 0.8}}
# Way of running → engine options, parameters of requests, number of prompts.
WAYS = {
    "batch of 16": ({}, {}, 100),
    "trees of three branches": ({"speculative_config": TREES}, {}, 100),
    "alone": ({}, {}, 20),
    "chunks of 7": ({"max_chunk_tokens": 7}, {}, 100),
    "preempted": ({"num_pages": 120}, {}, 100),
    "penalties": ({}, {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.3}, 100),
    "n = 4": ({}, {"n": 4}, 20),
    "tensor-parallel": ({"tensor_parallel_size": 3}, {}, 100),
}
NUM_TOKENS = 64


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove speculation")
    parser.add_argument("--row", metavar="NAME", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.row:
        print(json.dumps(speeds(MODEL) if args.row == "speeds" else compare(args.row)))
        return ""
    stored = ROOT / ".cache" / "proofs" / f"speculation-{state_of_sources()}.json"
    rows = json.loads(stored.read_text()) if stored.exists() else {}
    names = ("sampler", "equal", "ties", "of", "accepted", "of drafts", "ambiguous positions", "preemptions", "s")
    lines = [f"| way of running | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    bad: list[str] = []
    for way in WAYS:
        if way not in rows:
            rows[way] = _in_process(way)
            stored.parent.mkdir(parents=True, exist_ok=True)
            stored.write_text(json.dumps(rows))
        for row in rows[way]:
            lines.append(f"| {way} | {' | '.join(str(row[name]) for name in names)} |")
            print(lines[-1], file=sys.stderr)
            is_preempted = row["preemptions"] > 0 or way != "preempted"
            if row["equal"] + row["ties"] != row["of"] or not row["accepted"] or not is_preempted:
                bad.append(f"{way}, {row['sampler']}")
    lines += ["", "| speed, bfloat16 | measured | bound |", "|---|---|---|"]
    for law, measured, least in _in_process("speeds"):
        lines.append(f"| {law} | {measured:.2f} | at least {least} |")
        print(lines[-1], file=sys.stderr)
        if measured < least:
            bad.append(law)
    if bad:
        raise SystemExit("\n".join([*lines, "", f"failed: {'; '.join(bad)}"]))
    return "\n".join([*lines, "", "All rows pass."])


def state_of_sources() -> str:
    """A name for all sources that the results depend on."""
    files = [file for folder in ("jaxserve", "checkpoints", "pallas_kernels") for file in (ROOT / folder).rglob("*.py")]
    own = [Path(__file__), ROOT / "scripts/proofs/helpers/draw_ties.py", ROOT / "tests/support/drafting.py"]
    return digest_of([*files, *own])


def _in_process(row: str) -> list:
    """In a process of its own, because JAX fixes the number of CPU devices at its initialization."""
    size = WAYS[row][0].get("tensor_parallel_size", 1) if row in WAYS else 1
    env = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--xla_force_host_platform_device_count={size}"}
    run = "from scripts.proofs import speculation; speculation.main(sys.argv[1:])"
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {run}"
    command = [sys.executable, "-c", code, "--row", row]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare(way: str) -> list[dict]:
    """Texts of one way with drafts and without, by sampler."""
    from jaxserve import LLM
    from tests.support.drafting import always, counted

    options, params, num_prompts = WAYS[way]
    prompts = read_goldens(MODEL)[0][:num_prompts]
    with_drafts = COMMON | {"speculative_config": DRAFTS} | options
    plain, drafting = LLM(MODEL, **with_drafts | {"speculative_config": None}), always(LLM(MODEL, **with_drafts))
    is_processed = bool(params.keys() - {"n"})
    check, rows = None if is_processed else TieCheck(MODEL, **COMMON), list[dict]()
    for name, sampler in SAMPLERS.items():
        started, num_before = time.monotonic(), drafting.stats.num_preemptions
        asked = params | sampler
        expected = texts(plain, prompts, asked, is_alone=way == "alone")
        with counted(drafting) as seen:
            found = texts(drafting, prompts, asked, is_alone=way == "alone")
        different = [i for i in range(num_prompts) if found[i] != expected[i]]
        num_ties, ambiguous = 0, "–"
        if check is not None:
            temperature = sampler["temperature"]
            num_ties = sum(is_tie(check, prompts[i], found[i], expected[i], temperature, i) for i in different)
            ambiguous = count_ambiguous(check, prompts, expected, temperature)
        proposed, accepted = (int(total) for total in np.sum(seen, axis=0))
        rows.append(
            {
                "sampler": name,
                "equal": num_prompts - len(different),
                "ties": num_ties,
                "of": num_prompts,
                "accepted": accepted,
                "of drafts": proposed,
                "ambiguous positions": ambiguous,
                "preemptions": drafting.stats.num_preemptions - num_before,
                "s": round(time.monotonic() - started),
            }
        )
    return rows


def texts(llm, prompts: list[list[int]], params: dict, *, is_alone: bool) -> list[list[list[int]]]:
    """Of each prompt the tokens of its samples; the seed is its number."""
    from jaxserve import SamplingParams

    asked = [SamplingParams(**params, seed=i, max_tokens=NUM_TOKENS, ignore_eos=True) for i in range(len(prompts))]
    calls = [[i] for i in range(len(prompts))] if is_alone else [range(len(prompts))]
    outputs = [
        output
        for call in calls
        for output in llm.generate([prompts[i] for i in call], [asked[i] for i in call], use_tqdm=False)
    ]
    return [[sample.token_ids for sample in output.outputs] for output in outputs]


def is_tie(
    check: TieCheck, prompt: list[int], found: list[list[int]], expected: list[list[int]], temperature: float, seed: int
) -> bool:
    """Of every sample that differs, the first other token."""
    for sample_index, (one, other) in enumerate(zip(found, expected, strict=True)):
        at = next((k for k in range(NUM_TOKENS) if one[k] != other[k]), None)
        if at is not None:
            tokens = check.drawn([*prompt, *one[:at]], temperature, seed, sample_index)
            if not {one[at], other[at]} <= tokens:
                return False
    return True


def count_ambiguous(check: TieCheck, prompts: list[list[int]], expected: list, temperature: float) -> str:
    """At the last positions of every fifth text; each token is among those that are drawn there again."""
    places, ambiguous = range(0, len(prompts), 5), 0
    for i in places:
        text = expected[i][0]
        tokens = check.drawn([*prompts[i], *text[:-1]], temperature, i)
        if text[-1] not in tokens:
            raise SystemExit(f"the last token of text {i} is none of those drawn again, {tokens}: the check is wrong")
        ambiguous += len(tokens) > 1
    return f"{ambiguous} of {len(places)}"
