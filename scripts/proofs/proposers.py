"""Drafts of trained heads and layers change no token, and are measured: how often they are right, and what they cost.

Medusa heads and an EAGLE-3 draft of SmolLM2 are trained first, on 200,000 tokens that the model generates (stored in
.cache/proofs). Then 100 prompts x 64 tokens in batches of 16 in float32, greedy and at temperature 0.8, against plain
decoding, as in `scripts/prove speculation`, which says what a tie is. Laws are tested on texts of four tokens, tokens a
pass are those of trees of 8 drafts, greedy, after the goldens' prompts, and speeds are in bfloat16, in turns with plain
multi-step decoding.
"""

import argparse
import json
import shutil
import subprocess
import sys

from scripts.proofs.helpers.draft_counts import drafts_of
from scripts.proofs.helpers.draft_equality import SMOLLM, Way, compare
from scripts.proofs.helpers.draft_laws import LEAST_P, NUM_TEXTS, WARMER, exact_law, p_of_texts
from scripts.proofs.helpers.draft_rows import table_of
from scripts.proofs.helpers.draft_speeds import OPTIONS, ratio, unsuited_speeds
from scripts.proofs.helpers.stored_rows import ROOT, STORE, stored_row
from scripts.proofs.parity import read_goldens
from scripts.proofs.speculation import FEWER_LAYERS, ITSELF

METHODS = ("medusa", "eagle3")
SIZES = ["--num-tokens", "200000", "--dtype", "float32", "--max-num-seqs", "64"]
MEDUSA = {"method": "medusa", "model": str(STORE / "medusa"), "num_speculative_tokens": 8}
EAGLE = {"method": "eagle3", "model": str(STORE / "eagle3"), "num_speculative_tokens": 4}
EAGLE_TREE = EAGLE | {"num_speculative_tokens": 8, "eagle_topk": 3}
AUTO = EAGLE | {"method": "auto", "learned": "eagle3"}
WAYS = {
    "Medusa heads": Way({"speculative_config": MEDUSA}),
    "EAGLE-3, chains": Way({"speculative_config": EAGLE}),
    "EAGLE-3, trees": Way({"speculative_config": EAGLE_TREE}),
    "n-grams and EAGLE-3, in turns": Way({"speculative_config": AUTO}, num_prompts=40),
    "EAGLE-3, chunks of 7": Way({"max_chunk_tokens": 7, "speculative_config": EAGLE}, num_prompts=20),
    "EAGLE-3, preempted": Way({"num_pages": 120, "speculative_config": EAGLE}, num_prompts=40),
    "EAGLE-3, alone": Way({"speculative_config": EAGLE}, num_prompts=20, is_alone=True),
}
TIMED = {
    "Medusa heads": MEDUSA,
    "EAGLE-3, chains": EAGLE,
    "EAGLE-3, trees": EAGLE_TREE,
    "n-grams and EAGLE-3": AUTO,
    "the model drafts for itself": ITSELF,
    "without two layers": FEWER_LAYERS,
}
DRAWN = {
    "without two layers, matched": FEWER_LAYERS,
    "without two layers, rejection sampling": FEWER_LAYERS | {"acceptance": "rejection"},
    "EAGLE-3, trees, matched": EAGLE_TREE,
}
NUM_COUNTED = 32
NUM_TURNS = 8
LEAST_SUITED = 0.95  # or more: drafts that do not pay are switched off


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove proposers")
    parser.add_argument("--row", metavar="NAME", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.row:
        own = {"laws": _laws, "counts": _counts, "speeds": _speeds}.get(args.row, lambda: compare(WAYS[args.row]))
        print(json.dumps(own()))
        return ""
    for method in METHODS:
        _train(method)
    lines, bad = table_of("proposers", WAYS, {"EAGLE-3, preempted": "preemptions"})
    titles = {"laws": f"p of {NUM_TEXTS} texts, float32", "counts": "greedy, float32", "speeds": "speed, bfloat16"}
    for row, title in titles.items():
        lines += ["", f"| {title} | measured | bound |", "|---|---|---|"]
        for law, measured, least in stored_row("proposers", row):
            lines.append(f"| {law} | {measured:.3f} | at least {least:.3f} |")
            print(lines[-1], file=sys.stderr)
            if measured < least:
                bad.append(law)
    if bad:
        raise SystemExit("\n".join([*lines, "", f"failed: {'; '.join(bad)}"]))
    return "\n".join([*lines, "", "All rows pass."])


def _train(method: str) -> None:
    """Both learn the same texts."""
    folder, texts = STORE / method, STORE / "medusa" / "texts.npz"
    if (folder / "training.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    if texts.exists() and texts.parent != folder:
        shutil.copy(texts, folder)
    train = [sys.executable, "-m", "jaxserve.cli.main", "train-draft", SMOLLM, *SIZES]
    subprocess.run([*train, "--method", method, "--out", str(folder)], cwd=ROOT, check=True)


def _laws() -> list[tuple[str, float, float]]:
    """Texts have the model's law; the control is a law of another temperature."""
    from jaxserve import LLM
    from tests.support.drafting import always

    options = OPTIONS | {"dtype": "float32"}
    plain, prompt = LLM(SMOLLM, **options), read_goldens(SMOLLM)[0][0]
    law = exact_law(plain, prompt)
    laws = [
        (name, p_of_texts(always(LLM(SMOLLM, **options, speculative_config=config)), prompt, law), LEAST_P)
        for name, config in DRAWN.items()
    ]
    if (p := p_of_texts(plain, prompt, law, WARMER)) > 1e-6:
        raise SystemExit(f"the test does not see that texts are drawn at temperature {WARMER}: p = {p}")
    return [("without drafts", p_of_texts(plain, prompt, law), LEAST_P), *laws]


def _counts() -> list[tuple[str, float, float]]:
    """How often drafts are right, in training's held-out texts and in texts of an engine."""
    from jaxserve import LLM

    results = {method: json.loads((STORE / method / "training.json").read_text()) for method in METHODS}
    prompts = read_goldens(SMOLLM)[0][:NUM_COUNTED]
    options = OPTIONS | {"dtype": "float32"}
    medusa, eagle = (drafts_of(LLM(SMOLLM, **options, speculative_config=c), prompts) for c in (MEDUSA, EAGLE_TREE))
    first = {method: found["shares"][0][0] for method, found in results.items()}
    bigrams = results["medusa"]["bigram_share"]
    return [
        ("held-out tokens that the first Medusa head knows; at least those of bigrams", first["medusa"], bigrams),
        (
            "those that the EAGLE-3 draft knows; at least those of the first Medusa head",
            first["eagle3"],
            first["medusa"],
        ),
        ("tokens a pass, Medusa heads", medusa.tokens_a_pass, 1.0),
        ("tokens a pass, EAGLE-3; at least those of Medusa heads", eagle.tokens_a_pass, medusa.tokens_a_pass),
        *(
            (
                f"of {name}: tokens a pass over what acceptance by position predicts, or the inverse",
                found.agreement,
                0.97,
            )
            for name, found in (("Medusa heads", medusa), ("EAGLE-3", eagle))
        ),
    ]


def _speeds() -> list[tuple[str, float, float]]:
    from jaxserve import LLM, SamplingParams

    plain, goldens, laws = LLM(SMOLLM, **OPTIONS), read_goldens(SMOLLM)[0], []
    greedy = SamplingParams(temperature=0, max_tokens=128, ignore_eos=True)
    for name, config in TIMED.items():
        drafting = LLM(SMOLLM, **OPTIONS, speculative_config=config)
        suited = ratio(plain, drafting, goldens[:1], greedy, NUM_TURNS)
        laws += [(f"{name}: tokens/s of an answer alone, greedy", suited, LEAST_SUITED)]
        laws += unsuited_speeds(name, plain, drafting, goldens, NUM_TURNS)
    return laws
