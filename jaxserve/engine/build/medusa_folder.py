"""Wiring: reads and writes Medusa heads: blocks in one safetensors file, what they are worth in config.json.

0.0.linear.weight [D, D]    0.0.linear.bias [D]    1.0.linear.weight …      as the Medusa authors' files name them
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
from jax.sharding import Mesh

from checkpoints.errors import CheckpointError
from checkpoints.formats.atomic_files import write_json
from checkpoints.formats.safetensors import SafetensorsFile
from checkpoints.formats.safetensors_write import SINGLE, write_shard
from checkpoints.formats.tensor_file import TensorInfo
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.speculative_config import PARAM
from jaxserve.models.config.medusa_heads import MAX_HEADS, MAX_RANKS, UNKNOWN, MedusaHeads
from jaxserve.models.params import Params, targets
from jaxserve.text.folder_json import read_json

CONFIG = "config.json"
SHARES = "guess_shares"
"""In config.json: `MedusaHeads.shares`; without it the tree has the shape of heads that were never measured."""


@dataclass(frozen=True, slots=True)
class MedusaSource:
    """Heads before their weights are read."""

    model: MedusaHeads
    file: SafetensorsFile

    def params(self, mesh: Mesh, specs: Params, seed: int) -> Params:
        """The weights on a mesh, in the dtype that is declared."""
        heads, size = range(self.model.num_heads), self.model.d_model
        blocks = np.stack([self.file.read_rows(weight_name(head), 0, size) for head in heads])
        biases = np.concatenate([self.file.read_rows(bias_name(head), 0, 1) for head in heads])
        found = {"block": blocks, "bias": biases}
        places = targets(specs, mesh)
        return {name: jax.device_put(a.astype(places[name].dtype), places[name].sharding) for name, a in found.items()}


def write_medusa(folder: Path, heads: Params, shares: tuple[tuple[float, ...], ...], base_model: str) -> None:
    """Write heads, in float32; heads: block [K, D, D] and bias [K, D] (`Medusa.weights`)."""
    arrays = dict[str, np.ndarray]()
    for head, (block, bias) in enumerate(zip(heads["block"], heads["bias"], strict=True)):
        arrays |= {weight_name(head): np.asarray(block, np.float32), bias_name(head): np.asarray(bias, np.float32)}
    folder.mkdir(parents=True, exist_ok=True)
    tensors = [TensorInfo(name, array.shape, "F32", array.nbytes) for name, array in arrays.items()]
    write_shard(folder / SINGLE, tensors, lambda tensor: arrays[tensor.name])
    config = {"medusa_num_heads": len(shares), "medusa_num_layers": 1, "base_model_name_or_path": base_model}
    write_json(folder / CONFIG, config | {SHARES: shares})


def weight_name(head: int) -> str:
    return f"{head}.0.linear.weight"


def bias_name(head: int) -> str:
    return f"{head}.0.linear.bias"


@contextmanager
def open_medusa(name: str) -> Generator[MedusaSource]:
    """The heads of a folder. Raises ConfigError with what is wrong in it."""
    folder = Path(name).expanduser()
    files = sorted(folder.glob("*.safetensors"))
    if len(files) != 1:
        raise _error(
            f"{name!r} must be a folder with one safetensors file of Medusa heads, such as `jaxserve train-draft` "
            f"writes; it has {len(files)}"
        )
    try:
        file = SafetensorsFile(files[0])
    except CheckpointError as error:
        raise _error(str(error)) from error
    try:
        yield MedusaSource(_heads(file, read_json(folder / CONFIG)), file)
    finally:
        file.close()


def _heads(file: SafetensorsFile, config: dict[str, Any]) -> MedusaHeads:
    shapes = {name: info.shape for name, info in file.tensors.items()}
    num_heads = sum(weight_name(head) in shapes for head in range(MAX_HEADS))
    size = shapes.get(weight_name(0), (0,))[-1]
    expected = {weight_name(head): (size, size) for head in range(num_heads)}
    expected |= {bias_name(head): (size,) for head in range(num_heads)}
    if other := sorted(shapes.keys() - expected):
        raise _error(
            f"{file.name} has {other[0]}: supported are 1 to {MAX_HEADS} heads of one block each, which share the "
            "model's head (medusa_num_layers=1, no weights of a head of their own)"
        )
    for name, shape in expected.items():
        if shapes.get(name) != shape:
            raise _error(f"{file.name}: {name} has shape {shapes.get(name)} instead of {shape}")
    if not num_heads:
        raise _error(f"{file.name} has no {weight_name(0)}")
    shares = UNKNOWN[:num_heads] if SHARES not in config else _shares(config[SHARES], num_heads)
    return MedusaHeads(num_heads, size, shares)


def _shares(value: Any, num_heads: int) -> tuple[tuple[float, ...], ...]:
    heads = cast(list[Any], value) if isinstance(value, list) else []
    ranks = [cast(list[Any], head) if isinstance(head, list) else [] for head in heads]
    are_sized = len(ranks) == num_heads and all(1 <= len(head) <= MAX_RANKS for head in ranks)
    if not are_sized or not all(type(share) in (int, float) and 0 <= share <= 1 for head in ranks for share in head):
        raise _error(f"{CONFIG}: {SHARES} must list numbers from 0 to 1, 1 to {MAX_RANKS} of each of {num_heads} heads")
    return tuple(tuple(float(share) for share in head) for head in ranks)


def _error(message: str) -> ConfigError:
    return ConfigError(f"{PARAM}: {message}", PARAM)
