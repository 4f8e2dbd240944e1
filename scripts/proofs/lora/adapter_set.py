"""Random adapters of SmolLM2 as PEFT folders, of several ranks, of all matrices or some, and prompts for them."""

from pathlib import Path
from typing import Any

from jaxserve import LoRARequest
from scripts.proofs.helpers.draft_configs import SMOLLM
from scripts.proofs.parity import read_goldens
from tests.support.adapters.random_adapters import ALL, write_random_adapter

RANKS = (4, 8, 16, 64)
KINDS: tuple[dict[str, Any], ...] = (
    {"parts": ALL},
    {"parts": ("q", "v")},
    {"parts": ("q", "k", "v", "o"), "layers": tuple(range(0, 30, 2))},
    {"parts": ("gate", "up", "down"), "layers": tuple(range(10, 30))},
)
SIZE = 0.5  # of what is added to a weight, over 1 / sqrt(inputs): texts are others, and still texts
MAX_PROMPT_LEN = 192


def write_adapters(folder: Path, count: int) -> list[LoRARequest]:
    """No two of the first 16 have both rank and kind in common."""
    ranks_and_kinds = [(RANKS[i % 4], KINDS[(i // 4) % 4]) for i in range(count)]
    return [
        write_random_adapter(folder / f"adapter-{i}", SMOLLM, rank, i, **kind, size=SIZE)
        for i, (rank, kind) in enumerate(ranks_and_kinds)
    ]


def with_prompts(adapters: list[LoRARequest], count: int) -> tuple[list[list[int]], list[LoRARequest | None]]:
    """Prompts of the goldens. The first have an adapter each; then every other has none."""
    prompts = [prompt[:MAX_PROMPT_LEN] for prompt in read_goldens(SMOLLM)[0]]
    prompts = [prompts[i % len(prompts)] for i in range(count)]
    given = [adapters[i % len(adapters)] if i < len(adapters) or i % 2 else None for i in range(count)]
    return prompts, given
