"""Texts keep the law of their model with drafts of every proposer and with every rule of acceptance that promises it.

2,000 texts of four tokens of SmolLM2 in float32, after a prompt that begins to repeat a sentence: every proposer has
drafts of it that are accepted. Two controls must be seen to differ: texts of another temperature, and typical
acceptance, which promises no law. Heads are those that `scripts/prove proposers` trains.
"""

import argparse
import json
import sys

from scripts.proofs.draft_laws.texts_of_three import NUM_TEXTS, TEMPERATURE, Drawn, drawn, exact_law
from scripts.proofs.helpers.draft_configs import CONFIGS, FEWER_LAYERS, IN_FOUR_BITS, ITSELF, SMOLLM, ready
from scripts.proofs.helpers.stored_rows import stored_row

LEAST_P = 1e-3
MOST_OF_OTHERS = 1e-6
WARMER = 2.4  # of 1.4, 2,000 texts show too little: p = 0.04
OPTIONS = {"dtype": "float32", "max_model_len": 1024, "max_num_seqs": 16, "max_num_batched_tokens": 512}
PROMPT = (
    "<|im_start|>user\nWrite about the sea.<|im_end|>\n<|im_start|>assistant\n"
    "The sea is the source of life. The sea is the source of"
)
REJECTION, TYPICAL = {"acceptance": "rejection"}, {"acceptance": "typical"}
PLAIN, OF_ANOTHER = "without drafts", f"without drafts, drawn at temperature {WARMER}"
SETTINGS = {
    PLAIN: None,
    **CONFIGS,
    "the model drafts for itself, rejection sampling": ITSELF | REJECTION,
    "a copy in four bits drafts, rejection sampling": IN_FOUR_BITS | REJECTION,
    "without two layers, rejection sampling": FEWER_LAYERS | REJECTION,
}
CONTROLS = {OF_ANOTHER: None, "without two layers, typical acceptance": FEWER_LAYERS | TYPICAL}


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove draft_laws")
    parser.add_argument("--row", metavar="NAME", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.row:
        print(json.dumps(_drawn(args.row)))
        return ""
    lines, bad = ["| drafts | p | bound | proposed | accepted |", "|---|---|---|---|---|"], list[str]()
    for name, config in (SETTINGS | CONTROLS).items():
        row = Drawn(*stored_row("draft_laws", name))
        is_control = name in CONTROLS
        bound = f"at most {MOST_OF_OTHERS:.0e}" if is_control else f"at least {LEAST_P:.0e}"
        lines.append(f"| {name} | {row.p:.3g} | {bound} | {row.proposed} | {row.accepted} |")
        print(lines[-1], file=sys.stderr)
        has_its_law = row.p <= MOST_OF_OTHERS if is_control else row.p >= LEAST_P
        if not has_its_law or (config is not None and not row.accepted):
            bad.append(name)
    lines += ["", f"{NUM_TEXTS:,} texts each, drawn at temperature {TEMPERATURE}; the last two rows are controls."]
    if bad:
        raise SystemExit("\n".join([*lines, "", f"failed: {'; '.join(bad)}"]))
    return "\n".join([*lines, "", "All rows pass."])


def _drawn(name: str) -> Drawn:
    from jaxserve import LLM
    from tests.support.drafting import always

    config, plain = (SETTINGS | CONTROLS)[name], LLM(SMOLLM, **OPTIONS)
    prompt = plain.get_tokenizer().encode(PROMPT)
    law = exact_law(plain, prompt)
    if config is None:
        return drawn(plain, prompt, law, WARMER if name == OF_ANOTHER else TEMPERATURE)
    return drawn(always(LLM(SMOLLM, **OPTIONS, speculative_config=ready(config))), prompt, law)
