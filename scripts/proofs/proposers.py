"""Drafts of trained heads and layers change no token, and are measured: how often they are right, and what they cost.

Medusa heads and an EAGLE-3 draft of SmolLM2 are trained first, on 200,000 tokens that the model generates (stored in
.cache/proofs), and layers that drafts skip are searched. Then 100 prompts x 64 tokens in batches of 16 in float32,
greedy and at temperature 0.8, against plain decoding, as in `scripts/prove speculation`, which says what a tie is.
Tokens a pass are of greedy texts after the goldens' prompts, and speeds are in bfloat16, in turns with plain multi-step
decoding.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from typing import Any

from scripts.proofs.helpers.draft_configs import (
    CONFIGS,
    EAGLE,
    EAGLE_TREES,
    FEWER_LAYERS,
    MEDUSA,
    NGRAMS_AND_EAGLE,
    SMALLER_MODEL,
    SMOLLM,
    ready,
)
from scripts.proofs.helpers.draft_counts import Counts, drafts_of
from scripts.proofs.helpers.draft_equality import Way, compare
from scripts.proofs.helpers.draft_rows import table_of
from scripts.proofs.helpers.draft_speeds import OPTIONS, Law, drafting_share, ratio, unsuited_speeds
from scripts.proofs.helpers.stored_rows import ROOT, STORE, stored_row
from scripts.proofs.parity import read_goldens

TEXTS, RESULTS, SKIPS, TIMES = "texts.npz", "training.json", "skips.json", "minutes.json"
SIZES, NUM_TOKENS = ["--dtype", "float32", "--max-num-seqs", "64"], ["--num-tokens", "200000"]
SEARCHED = "layer_skip"
METHODS = ("medusa", "eagle3", SEARCHED)
MOST_MINUTES = 20
WAYS = {
    "Medusa heads": Way({"speculative_config": MEDUSA}),
    "EAGLE-3, chains": Way({"speculative_config": EAGLE}),
    "EAGLE-3, trees": Way({"speculative_config": EAGLE_TREES}),
    "n-grams and EAGLE-3, in turns": Way({"speculative_config": NGRAMS_AND_EAGLE}),
    "EAGLE-3, chunks of 7": Way({"max_chunk_tokens": 7, "speculative_config": EAGLE}),
}
TIMED = {
    "Medusa heads": MEDUSA,
    "EAGLE-3, chains": EAGLE,
    "EAGLE-3, trees": EAGLE_TREES,
    "n-grams and EAGLE-3": NGRAMS_AND_EAGLE,
    # It reads prompts at a tenth of the model's cost; the model itself would take as long as the model to read them.
    "the model's first three layers": SMALLER_MODEL,
    "without two layers": FEWER_LAYERS,
}
COUNTED, SPEEDS = "counts of {}", "speeds of {}"
NUM_COUNTED = 32
NUM_TURNS = 8
LEAST_SUITED = 0.95  # drafts that do not pay are switched off: the table shows how many passes had some
LEAST_AGREEMENT = 0.97


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove proposers")
    parser.add_argument("--row", metavar="NAME", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.row:
        rows = {COUNTED.format(name): lambda name=name: _counts(name) for name in CONFIGS}
        rows |= {SPEEDS.format(name): lambda name=name: _speeds(name) for name in TIMED}
        rows |= {name: lambda way=way: compare("proposers", way) for name, way in WAYS.items()}
        print(json.dumps(rows[args.row]()))
        return ""
    minutes = {method: _train(method) for method in METHODS}
    lines, bad = table_of("proposers", WAYS, {})
    for title, laws in (
        ("training", _training_laws(minutes)),
        ("greedy, float32", _count_laws()),
        ("speed, bfloat16", [law for name in TIMED for law in stored_row("proposers", SPEEDS.format(name))]),
    ):
        lines += ["", f"| {title} | measured | bound |", "|---|---|---|"]
        for law, measured, least in laws:
            lines.append(f"| {law} | {measured:.3f} | at least {least:.3f} |")
            print(lines[-1], file=sys.stderr)
            if measured < least:
                bad.append(law)
    lines += ["", *_searched()]
    if bad:
        raise SystemExit("\n".join([*lines, "", f"failed: {'; '.join(bad)}"]))
    return "\n".join([*lines, "", "All rows pass."])


def _train(method: str) -> float:
    """The minutes that it takes once there are texts, which all methods have in common."""
    folder, texts = STORE / method, STORE / "texts"
    if (folder / TIMES).exists():
        return json.loads((folder / TIMES).read_text())
    train = [sys.executable, "-m", "jaxserve.cli.main", "train-draft", SMOLLM, *SIZES]
    if not (texts / RESULTS).exists():
        subprocess.run([*train, *NUM_TOKENS, "--max-steps", "1", "--out", str(texts)], cwd=ROOT, check=True)
    shutil.rmtree(folder, ignore_errors=True)  # of a training that was interrupted: its time is not known
    folder.mkdir()
    shutil.copy(texts / TEXTS, folder)
    own = [] if method == SEARCHED else NUM_TOKENS
    started_s = time.monotonic()
    subprocess.run([*train, *own, "--method", method, "--out", str(folder)], cwd=ROOT, check=True)
    minutes = (time.monotonic() - started_s) / 60
    (folder / TIMES).write_text(json.dumps(minutes))
    return minutes


def _results(method: str) -> Any:
    return json.loads((STORE / method / (SKIPS if method == SEARCHED else RESULTS)).read_text())


def _training_laws(minutes: dict[str, float]) -> list[Law]:
    """Times, and how often guesses are right in held-out texts."""
    first = {method: _results(method)["shares"][0][0] for method in minutes if method != SEARCHED}
    return [
        *((f"{MOST_MINUTES} minutes over those of {method}", MOST_MINUTES / m, 1.0) for method, m in minutes.items()),
        (
            "held-out tokens that the first Medusa head knows; at least those of bigrams",
            first["medusa"],
            _results("medusa")["bigram_share"],
        ),
        (
            "those that the EAGLE-3 draft knows; at least those of the first Medusa head",
            first["eagle3"],
            first["medusa"],
        ),
    ]


def _searched() -> list[str]:
    """Layer skip, as the search found it."""
    return [
        "| layers left out | likeliest token unchanged | expected speed with 4 drafts |",
        "|---|---|---|",
        *(
            f"| {', '.join(map(str, s['skipped']))} | {s['agreement']:.3f} | {s['speed']:.2f} |"
            for s in _results(SEARCHED)
        ),
    ]


def _count_laws() -> list[Law]:
    """How far passes advance texts of an engine."""
    counts = {name: Counts(*stored_row("proposers", COUNTED.format(name))) for name in CONFIGS}
    least = dict.fromkeys(CONFIGS, 1.0) | {"EAGLE-3, trees": counts["Medusa heads"].tokens_a_pass}
    return [
        *((f"tokens a pass, {name}", found.tokens_a_pass, least[name]) for name, found in counts.items()),
        *(
            (f"{name}: tokens a pass over what acceptance predicts, or the inverse", found.agreement, LEAST_AGREEMENT)
            for name, found in counts.items()
        ),
    ]


def _counts(name: str) -> Counts:
    from jaxserve import LLM

    llm = LLM(SMOLLM, **OPTIONS | {"dtype": "float32"}, speculative_config=ready(CONFIGS[name]))
    return drafts_of(llm, read_goldens(SMOLLM)[0][:NUM_COUNTED])


def _speeds(name: str) -> list[Law]:
    from jaxserve import LLM, SamplingParams

    plain, goldens = LLM(SMOLLM, **OPTIONS), read_goldens(SMOLLM)[0]
    drafting = LLM(SMOLLM, **OPTIONS, speculative_config=ready(TIMED[name]))
    greedy = SamplingParams(temperature=0, max_tokens=128, ignore_eos=True)
    suited = ratio(plain, drafting, goldens[:1], greedy, NUM_TURNS)
    share = drafting_share(drafting, goldens[:1], greedy)
    return [
        (f"{name}: tokens/s of an answer alone, greedy, drafts in {share:.0%} of the passes", suited, LEAST_SUITED),
        *unsuited_speeds(name, plain, drafting, goldens, NUM_TURNS),
    ]
