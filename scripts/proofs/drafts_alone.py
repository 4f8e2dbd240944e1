"""Drafts of every proposer change no token of a request that runs alone, or of requests that are preempted.

100 prompts x 64 tokens in float32, greedy and at temperature 0.8, one after the other, and in a batch of 16 with too
few pages, against plain decoding of the same options; `scripts/prove speculation` says what a tie is. Medusa heads and
the EAGLE-3 draft are those of `scripts/prove proposers`, which trains them.
"""

import argparse
import json

from scripts.proofs.helpers.draft_configs import CONFIGS
from scripts.proofs.helpers.draft_equality import Way, compare
from scripts.proofs.helpers.draft_rows import table_of

PREEMPTED = {
    f"{name}, preempted": Way({"num_pages": 120, "speculative_config": config}) for name, config in CONFIGS.items()
}
ALONE = {f"{name}, alone": Way({"speculative_config": config}, is_alone=True) for name, config in CONFIGS.items()}
WAYS = PREEMPTED | ALONE


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove drafts_alone")
    parser.add_argument("--row", metavar="NAME", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.row:
        print(json.dumps(compare("drafts_alone", WAYS[args.row])))
        return ""
    lines, bad = table_of("drafts_alone", WAYS, dict.fromkeys(PREEMPTED, "preemptions"))
    if bad:
        raise SystemExit("\n".join([*lines, "", f"failed: {'; '.join(bad)}"]))
    return "\n".join([*lines, "", "All rows pass."])
