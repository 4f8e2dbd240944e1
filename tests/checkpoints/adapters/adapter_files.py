"""Writes adapters as PEFT does, by plain numpy, and what they add to each matrix."""

import json
from pathlib import Path

import numpy as np

from tests.checkpoints import safetensors_builder as build

SHAPES = {"q": (16, 8), "k": (4, 8), "v": (4, 8), "o": (8, 16), "gate": (12, 8), "up": (12, 8), "down": (8, 12)}
NUM_LAYERS = 3
MODULES = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
PREFIX = "base_model.model.model.layers."
CONFIG = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "bias": "none"}


def tensors(parts="qv", rank=4, layers=range(NUM_LAYERS), prefix=PREFIX, suffix=".weight", dtype=np.float32):
    """By name, values of any size: random."""
    rng, found = np.random.default_rng(0), {}
    for layer in layers:
        for part in parts:
            (num_out, num_in), name = SHAPES[part], f"{prefix}{layer}.{MODULES[part]}"
            found[f"{name}.lora_A{suffix}"] = rng.standard_normal((rank, num_in)).astype(dtype)
            found[f"{name}.lora_B{suffix}"] = rng.standard_normal((num_out, rank)).astype(dtype)
    return found


def write(folder: Path, values=None, **config) -> Path:
    """An adapter of these tensors, with changes of the configuration."""
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | config))
    build.write(folder / "adapter_model.safetensors", tensors() if values is None else values)
    return folder
