"""Drafts of trained heads and layers change no token.

Medusa heads and an EAGLE-3 draft of SmolLM2 are trained first, briefly, on texts that the model generates (stored in
.cache/proofs). Then 100 prompts x 64 tokens in batches of 16 in float32, greedy and at temperature 0.8, against plain
decoding, as in `scripts/prove speculation`, which says what a tie is.
"""

import argparse
import json
import subprocess
import sys

from scripts.proofs.helpers.draft_equality import SMOLLM, Way, compare
from scripts.proofs.helpers.draft_rows import ROOT, STORE, table_of

METHODS = {
    "medusa": ["--depth", "3"],
    "eagle3": ["--depth", "4", "--epochs", "2", "--learning-rate", "0.0005"],
}
MEDUSA = {"method": "medusa", "model": str(STORE / "medusa"), "num_speculative_tokens": 8}
EAGLE = {"method": "eagle3", "model": str(STORE / "eagle3"), "num_speculative_tokens": 4}
WAYS = {
    "Medusa heads": Way({"speculative_config": MEDUSA}),
    "EAGLE-3, chains": Way({"speculative_config": EAGLE}),
    "EAGLE-3, trees": Way({"speculative_config": EAGLE | {"num_speculative_tokens": 8, "eagle_topk": 3}}),
    "n-grams and EAGLE-3, in turns": Way({"speculative_config": EAGLE | {"method": "auto", "learned": "eagle3"}}),
    "EAGLE-3, chunks of 7": Way({"max_chunk_tokens": 7, "speculative_config": EAGLE}, num_prompts=20),
    "EAGLE-3, preempted": Way({"num_pages": 120, "speculative_config": EAGLE}, num_prompts=40),
    "EAGLE-3, alone": Way({"speculative_config": EAGLE}, num_prompts=20, is_alone=True),
}


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove proposers")
    parser.add_argument("--row", metavar="NAME", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.row:
        print(json.dumps(compare(WAYS[args.row])))
        return ""
    for method, options in METHODS.items():
        if not (STORE / method / "training.html").exists():
            train = [sys.executable, "-m", "jaxserve.cli.main", "train-draft", SMOLLM, "--num-tokens", "60000"]
            own = ["--method", method, "--out", str(STORE / method), *options]
            subprocess.run([*train, *own], cwd=ROOT, check=True)
    lines, bad = table_of("proposers", WAYS, {"EAGLE-3, preempted": "preemptions"})
    if bad:
        raise SystemExit("\n".join([*lines, "", f"failed: {'; '.join(bad)}"]))
    return "\n".join([*lines, "", "All rows pass."])
