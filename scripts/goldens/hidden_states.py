"""Makes the golden hidden states of some of the tiny checkpoints of `models.py`, with transformers and torch.

Run in an environment with requirements/oracle.txt:  python scripts/goldens/hidden_states.py
Writes tests/goldens/hidden_states.npz: `output_hidden_states` of the prompt of 17 tokens per family, [L + 1, T, D].
"""

from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

GOLDENS = Path(__file__).parents[2] / "tests" / "goldens"
FAMILIES = ("llama3", "gemma3", "qwen2")


@torch.no_grad()
def main() -> None:
    arrays = {}
    for family in FAMILIES:
        model = AutoModelForCausalLM.from_pretrained(GOLDENS / family, dtype=torch.float32).eval()
        prompt = np.load(GOLDENS / family / "goldens.npz")["prompt17"]
        states = model(torch.tensor(prompt.astype(np.int64))[None], output_hidden_states=True).hidden_states
        arrays[family] = torch.cat(states).numpy()
        print(family, arrays[family].shape)
    np.savez_compressed(GOLDENS / "hidden_states.npz", **arrays)


if __name__ == "__main__":
    main()
