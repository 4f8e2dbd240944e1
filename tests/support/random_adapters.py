"""Adapters of random matrices for the tiny checkpoints, as files, and models that have them in their weights."""

import json
from functools import cache
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from checkpoints.adapters.read_adapter import read_adapter
from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.sources import resolve
from jaxserve import LoRARequest
from jaxserve.convert.convert_model import ConversionTarget, convert
from jaxserve.engine.build.adapter_reading import matrix_shapes
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.runner.load_weights import read_config
from tests.support.golden_data import checkpoint
from tests.support.naive_loop import NaiveModel

ALL = ("q", "k", "v", "o", "gate", "up", "down")
MODULES = {name: f"{'mlp' if name in ('gate', 'up', 'down') else 'self_attn'}.{name}_proj" for name in ALL}
SIZE = 0.5  # of what is added, by that of the weights: texts change, and logits stay as exact as they are


@cache
def config_of(model: str) -> ModelConfig:
    with open_checkpoint(resolve(model)) as opened:
        return read_config(opened)


def write_adapter(
    folder: Path, model: str, rank: int, seed: int, parts: tuple[str, ...] = ALL, layers: tuple[int, ...] | None = None
) -> LoRARequest:
    """A PEFT folder with random matrices, none of them zero, of `parts` of these layers (None: all)."""
    config, rng, tensors = config_of(model), np.random.default_rng(seed), dict[str, np.ndarray]()
    for layer in range(config.num_layers) if layers is None else layers:
        for part in parts:
            num_outputs, num_inputs = matrix_shapes(config)[part]
            name = f"base_model.model.model.layers.{layer}.{MODULES[part]}"
            a, b = rng.standard_normal((rank, num_inputs)), rng.standard_normal((num_outputs, rank))
            tensors[f"{name}.lora_A.weight"] = (a * num_inputs**-0.5).astype(np.float32)
            tensors[f"{name}.lora_B.weight"] = (b * SIZE * rank**-0.5).astype(np.float32)
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    targets = [MODULES[part].partition(".")[2] for part in parts]
    described = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": targets}
    if layers is not None:
        described |= {"layers_to_transform": list(layers), "layers_pattern": "layers"}
    (folder / "adapter_config.json").write_text(json.dumps(described))
    return LoRARequest(folder.name, str(folder))


def merged(folder: Path, model: str, adapter: LoRARequest | None) -> NaiveModel:
    """The naive model with the adapter in its weights; folder: to write it to."""
    if adapter is None:
        return NaiveModel.load(model)
    config = config_of(model)
    weights = read_adapter(adapter.lora_path, matrix_shapes(config), config.num_layers, 256)
    convert(
        resolve(model),
        ConversionTarget(folder, "safetensors", "float32", 2**30, False),
        lambda *_: None,
        adapter=weights,
    )
    return NaiveModel.load(folder)


def tiny(family: str) -> str:
    """The tiny checkpoint of a family."""
    return str(checkpoint(family))
