"""Golden data made by transformers (scripts/goldens): tiny checkpoints with logits, real models with greedy tokens."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[1] / "goldens"
FAMILIES = ("llama2", "llama3", "gemma3", "mistral", "qwen2", "qwen3", "gemma2", "phi3", "phi4")
# The families that differ for the engine: one kind of layers, grouped queries, windows. The engine is tested on these;
# the others differ only in their layers.
ENGINE_FAMILIES = ("llama2", "llama3", "gemma3")
PROMPT_LENS = (1, 17, 60)


@dataclass(frozen=True)
class Golden:
    """One prompt with the logits after each of its tokens and its greedy continuation."""

    prompt: list[int]
    logits: np.ndarray
    greedy: list[int]


@cache
def goldens(family: str) -> tuple[Golden, ...]:
    arrays = np.load(FOLDER / family / "goldens.npz")
    return tuple(
        Golden(arrays[f"prompt{n}"].tolist(), arrays[f"logits{n}"], arrays[f"greedy{n}"].tolist()) for n in PROMPT_LENS
    )


def checkpoint(family: str) -> Path:
    return FOLDER / family
