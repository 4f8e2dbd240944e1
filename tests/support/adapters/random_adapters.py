"""Adapters of random matrices for the tiny checkpoints, as files, and models that have them in their weights."""

from functools import cache
from pathlib import Path

import numpy as np

from checkpoints.adapters.low_rank import AdapterWeights, LowRank
from checkpoints.adapters.read_adapter import read_adapter
from checkpoints.adapters.write_adapter import write_adapter
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
SIZE = 0.5  # of what is added, by that of the weights: texts change, and logits stay as exact as they are


@cache
def config_of(model: str) -> ModelConfig:
    with open_checkpoint(resolve(model)) as opened:
        return read_config(opened)


def write_random_adapter(
    folder: Path,
    model: str,
    rank: int,
    seed: int,
    parts: tuple[str, ...] = ALL,
    layers: tuple[int, ...] | None = None,
    *,
    size: float = SIZE,
    dtype: str = "F32",
) -> LoRARequest:
    """A PEFT folder with random matrices, none of them zero, of `parts` of these layers (None: all)."""
    config, rng = config_of(model), np.random.default_rng(seed)
    shapes = matrix_shapes(config)

    def drawn(num_outputs: int, num_inputs: int) -> LowRank:
        a, b = rng.standard_normal((rank, num_inputs)), rng.standard_normal((num_outputs, rank))
        return LowRank((a * num_inputs**-0.5).astype(np.float32), (b * size * rank**-0.5).astype(np.float32))

    keys = [(layer, part) for layer in (range(config.num_layers) if layers is None else layers) for part in parts]
    write_adapter(folder, AdapterWeights({key: drawn(*shapes[key[1]]) for key in keys}), dtype=dtype)
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
