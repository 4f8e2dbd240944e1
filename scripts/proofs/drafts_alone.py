"""Drafts of every proposer change no token of a request that runs alone, or of requests that are preempted.

What `scripts/prove speculation` shows of n-grams and `scripts/prove proposers` of EAGLE-3, of the others: 20 prompts,
one after the other, and 40 in a batch of 16 with too few pages, 64 tokens each in float32, greedy and at temperature
0.8, against plain decoding. The Medusa heads are those of `scripts/prove proposers`, which trains them.
"""

import argparse
import json

from scripts.proofs.helpers.draft_equality import Way, compare
from scripts.proofs.helpers.draft_rows import table_of
from scripts.proofs.proposers import MEDUSA
from scripts.proofs.speculation import FEWER_LAYERS, ITSELF, SUFFIXES

CONFIGS = {
    "suffixes": SUFFIXES,
    "the model drafts for itself": ITSELF,
    "without two layers": FEWER_LAYERS,
    "Medusa heads": MEDUSA,
}
PREEMPTED = {
    f"{name}, preempted": Way({"num_pages": 120, "speculative_config": config}, num_prompts=40)
    for name, config in CONFIGS.items()
}
ALONE = {
    f"{name}, alone": Way({"speculative_config": config}, num_prompts=20, is_alone=True)
    for name, config in CONFIGS.items()
}
WAYS = PREEMPTED | ALONE


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove drafts_alone")
    parser.add_argument("--row", metavar="NAME", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.row:
        print(json.dumps(compare(WAYS[args.row])))
        return ""
    lines, bad = table_of("drafts_alone", WAYS, dict.fromkeys(PREEMPTED, "preemptions"))
    if bad:
        raise SystemExit("\n".join([*lines, "", f"failed: {'; '.join(bad)}"]))
    return "\n".join([*lines, "", "All rows pass."])
