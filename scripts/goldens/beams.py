"""Makes the goldens of beam search on some of the tiny checkpoints of `models.py`, with transformers and torch.

Run in an environment with requirements/oracle.txt:  python scripts/goldens/beams.py
Writes tests/goldens/beams.json: the settings of each case, and per prompt the generated tokens and the score of each
text, best first. Tokens that the model prefers serve as end tokens, so texts end early. Cases in which noise of 2e-5 on
the log-probabilities changes a token are left out, because rounding would decide them.
"""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, GenerationConfig, LogitsProcessor
from transformers.generation import GenerationMode

GOLDENS = Path(__file__).parents[2] / "tests" / "goldens"
FAMILIES = ("llama3", "gemma3")
PROMPT_LENS = (1, 17, 60)
MAX_TOKENS = 14
RULES = [*product((False,), (0.0, 0.6, 1.0, 2.0)), *product((True, "never"), (0.0, 1.0)), ("never", -1.0)]
NUM_NOISES = 3


class Noise(LogitsProcessor):
    def __init__(self, seed: int):
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores + 2e-5 * torch.randn(scores.shape, generator=self.generator)


@torch.no_grad()
def search(model, prompt: list[int], case: dict, noise: tuple[Noise, ...] = ()) -> tuple[list[list[int]], list[float]]:
    """Generated tokens, including end tokens, and scores."""
    config = GenerationConfig(
        num_beams=case["beam_width"],
        num_return_sequences=case["beam_width"],
        max_new_tokens=case["max_tokens"],
        length_penalty=case["length_penalty"],
        early_stopping=case["early_stopping"],
        eos_token_id=case["eos_ids"] or None,
        pad_token_id=0,
        output_scores=True,
        return_dict_in_generate=True,
    )
    model.generation_config = config
    ids = torch.tensor([prompt])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), logits_processor=[*noise])
    lens = (out.beam_indices >= 0).sum(1).tolist()
    tokens = out.sequences[:, ids.shape[1] :].tolist()
    return [text[:n] for text, n in zip(tokens, lens, strict=True)], out.sequences_scores.tolist()


def cases_of(model, prompts: list[list[int]]) -> Iterator[dict]:
    """Settings of all cases: each width and rule with one or two end tokens, and some without end tokens."""
    plain = {"beam_width": 4, "max_tokens": MAX_TOKENS, "eos_ids": [], "length_penalty": 1.0, "early_stopping": False}
    first, last = (search(model, prompt, plain)[0] for prompt in (prompts[0], prompts[-1]))
    liked = list(dict.fromkeys([first[0][3], *last[1][6:], *last[0]]))[:2]
    for width, num_ends, (stopping, penalty) in product((1, 2, 4), (1, 2), RULES):
        rule = {"length_penalty": penalty, "early_stopping": stopping}
        yield plain | {"beam_width": width, "eos_ids": liked[:num_ends]} | rule
    yield from (plain | {"beam_width": width} for width in (2, 4))


def main() -> None:
    # transformers would decode a width of 1 greedily; this makes it use beam search too.
    GenerationConfig.get_generation_mode = lambda self, assistant_model=None: GenerationMode.BEAM_SEARCH
    made, num_left_out = [], 0
    for family in FAMILIES:
        model = AutoModelForCausalLM.from_pretrained(GOLDENS / family, dtype=torch.float32).eval()
        arrays = np.load(GOLDENS / family / "goldens.npz")
        prompts = [arrays[f"prompt{length}"].tolist() for length in PROMPT_LENS]
        for case in cases_of(model, prompts):
            found = [search(model, prompt, case) for prompt in prompts]
            noisy = [search(model, p, case, (Noise(seed),))[0] for p in prompts for seed in range(NUM_NOISES)]
            if noisy != [tokens for tokens, _ in found for _ in range(NUM_NOISES)]:
                num_left_out += 1
                continue
            texts, scores = zip(*found, strict=True)
            made.append({"family": family, **case, "texts": texts, "scores": scores})
        print(family, len(made), "cases,", num_left_out, "left out", flush=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in made)
    (GOLDENS / "beams.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
