"""Drafts change no token in any way of running them, and pay where a text repeats itself.

Drafts, most from n-grams, in every step that may have them, 100 prompts x 64 tokens in float32, greedy and at
temperature 0.8, against plain decoding of the same engine options. Buckets round differently in their last bits, so
once in some ten thousand tokens a random number lies between the two roundings of a boundary. Where a text differs,
its first other token is therefore drawn again from the logits of its position with small random errors: it is a *tie*
if both tokens are drawn so (`helpers/draw_ties.py`). A control counts positions of equal texts at which more than one
token is drawn.

Then, in bfloat16 and with drafts where they are expected to pay, in turns with plain multi-step decoding: a text to be
copied, prompts that do not suit, and a batch of 32; suffixes and n-grams are compared on answers that are revised. Rows
are stored in .cache/proofs: an interrupted run continues as long as the sources that affect them are unchanged.
"""

import argparse
import json
import sys

from scripts.proofs.helpers.draft_configs import (
    FEWER_LAYERS,
    FIRST_LAYERS,
    IN_FOUR_BITS,
    ITSELF,
    NGRAM_TREES,
    SMOLLM,
    SUFFIXES,
)
from scripts.proofs.helpers.draft_equality import Way, compare
from scripts.proofs.helpers.draft_rows import table_of
from scripts.proofs.helpers.draft_speeds import speeds
from scripts.proofs.helpers.stored_rows import stored_row

PENALTIES = {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.3}
WAYS = {
    "batch of 16": Way(),
    "trees of three branches": Way({"speculative_config": NGRAM_TREES}),
    "suffixes, in earlier outputs too": Way({"speculative_config": SUFFIXES}),
    "the model drafts for itself": Way({"speculative_config": ITSELF}),
    "a copy in four bits drafts": Way({"speculative_config": IN_FOUR_BITS}),
    "without two layers": Way({"speculative_config": FEWER_LAYERS}),
    "without the last six layers": Way({"speculative_config": FIRST_LAYERS}),
    "chunks of 7": Way({"max_chunk_tokens": 7}),
    "prefix of 100 tokens in all prompts": Way(shared_len=100),
    "every third aborted": Way(ends_early=True),
    "penalties": Way(params=PENALTIES),
    "n = 4": Way(params={"n": 4}, num_prompts=20),
    "tensor-parallel": Way({"tensor_parallel_size": 3}),
    # Its window is 512 tokens: it moves over the borders of pages while drafts are accepted and rejected.
    "window, prompts of 500 tokens": Way(model="gemma-3-270m", num_prompts=20, prompt_len=500),
}
WITNESSES = {
    "prefix of 100 tokens in all prompts": "cached tokens",
    "every third aborted": "aborted",
}
"""Columns that must not be 0: what the row is about has happened."""
ACCEPTING_ALL = ("the model drafts for itself",)


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove speculation")
    parser.add_argument("--row", metavar="NAME", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.row:
        print(json.dumps(speeds(SMOLLM) if args.row == "speeds" else compare("speculation", WAYS[args.row])))
        return ""
    lines, bad = table_of("speculation", WAYS, WITNESSES, ACCEPTING_ALL)
    lines += ["", "| speed, bfloat16 | measured | bound |", "|---|---|---|"]
    for law, measured, least in stored_row("speculation", "speeds"):
        lines.append(f"| {law} | {measured:.2f} | at least {least:.2f} |")
        print(lines[-1], file=sys.stderr)
        if measured < least:
            bad.append(law)
    if bad:
        raise SystemExit("\n".join([*lines, "", f"failed: {'; '.join(bad)}"]))
    return "\n".join([*lines, "", "All rows pass."])
