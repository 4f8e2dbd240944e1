"""Wiring: reads and writes EAGLE-3 drafts: safetensors and a config.json, as the authors and SpecForge publish them."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from checkpoints.errors import CheckpointError
from checkpoints.formats.atomic_files import write_json
from checkpoints.formats.safetensors_write import SINGLE, write_shard
from checkpoints.formats.tensor_file import INTEGER_DTYPES, TensorInfo
from checkpoints.load import load
from checkpoints.mapping.parts import Part, SavedTree
from checkpoints.mapping.trees import by_path, is_tuple
from checkpoints.open_checkpoint import Checkpoint, open_checkpoint
from checkpoints.sources import ResolvedSource
from checkpoints.tensor_names import eagle3_names
from checkpoints.writing.reverse_rules import TensorBuilder, written_tensors
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.speculative_config import PARAM
from jaxserve.models.config.eagle_config import EagleConfig
from jaxserve.models.families import eagle3
from jaxserve.models.params import Params, init_random, targets
from jaxserve.runner.load_weights import dims
from jaxserve.text.folder_json import read_json

TOKENS = "tokens"
"""The leaf that is made of `d2t`, and no file has as it is."""


@dataclass(frozen=True, slots=True)
class EagleSource:
    """A draft before its weights are read. checkpoint: None: random weights."""

    model: EagleConfig
    checkpoint: Checkpoint | None

    def params(self, mesh: Mesh, specs: Params, seed: int) -> Params:
        """The weights on a mesh, in the dtypes that are declared."""
        tokens = np.zeros(specs[TOKENS].shape, np.int32)
        tokens[: self.model.model.vocab_size] = self._tokens()
        rest = {name: spec for name, spec in specs.items() if name != TOKENS}
        place = targets({TOKENS: specs[TOKENS]}, mesh)[TOKENS]
        return self._rest(mesh, rest, seed) | {TOKENS: jax.device_put(tokens, place.sharding)}

    def _rest(self, mesh: Mesh, specs: Params, seed: int) -> Params:
        if self.checkpoint is None:
            return init_random(specs, mesh, seed & 0xFFFFFFFF)
        try:
            return load(self.checkpoint, targets(specs, mesh), eagle3_names.rules(dims(self.model.model, mesh)))
        except CheckpointError as error:
            raise _error(str(error)) from error

    def _tokens(self) -> np.ndarray:
        """int64[Vd]: the target's token of each entry of the draft's vocabulary."""
        size, own = self.model.vocab_size, np.arange(self.model.model.vocab_size)
        if self.checkpoint is None:
            return own
        info = self.checkpoint.tensors.get(eagle3_names.OFFSETS)
        if info is None and len(own) == size:
            return own
        where = f"{self.checkpoint.weights.name}: {eagle3_names.OFFSETS}"
        if info is None or info.shape != own.shape or info.dtype not in INTEGER_DTYPES:
            raise _error(f"{where} must be {len(own)} integers, one for each token of the draft's vocabulary")
        found = own + self.checkpoint.file.read_rows(eagle3_names.OFFSETS, 0, 1)[0].astype(np.int64)
        if found.min() < 0 or found.max() >= size or len(np.unique(found)) < len(found):
            raise _error(f"{where} must give different tokens, from 0 to {size - 1}")
        return found


@contextmanager
def open_eagle(source: ResolvedSource) -> Generator[EagleSource]:
    """The draft of these files. Raises ConfigError with what is wrong in them."""
    if source.format != "safetensors":
        raise _error(f"{source.source!r} must be an EAGLE-3 draft in safetensors, not {source.format}")
    try:
        checkpoint = open_checkpoint(source)
    except CheckpointError as error:
        raise _error(str(error)) from error
    with checkpoint:
        try:
            config = eagle3.from_hf(checkpoint.config)
        except ConfigError as error:
            raise _error(f"{source.source!r} is no EAGLE-3 draft: {error}") from error
        yield EagleSource(config, checkpoint)


def random_eagle(folder: Path) -> EagleSource:
    """A draft of random weights, of which only the config.json is read."""
    if not (config := read_json(folder / "config.json")):
        raise _error(f"{str(folder)!r} must be a folder with a config.json of an EAGLE-3 draft")
    return EagleSource(eagle3.from_hf(config), None)


def write_eagle(folder: Path, config: EagleConfig, params: Params, tokens: np.ndarray, mesh: Mesh) -> None:
    """Write a draft, in float32. params: without `tokens`. tokens: int[Vd], different tokens of the target."""
    leaves = {path: _saved(leaf) for path, leaf in by_path(params).items()}
    sizes = dims(config.model, mesh)
    shapes = {path: leaf.shape for path, leaf in leaves.items()}
    tree = SavedTree(shapes, {path: leaf.dtype for path, leaf in leaves.items()}, sizes.layer_slots)
    rules = eagle3_names.rules(sizes)
    weights = {t.info.name: t for t in written_tensors(tree, rules, "F32", 4)}
    offsets = (tokens - np.arange(len(tokens))).astype(np.int64)
    others = [TensorInfo(eagle3_names.OFFSETS, offsets.shape, "I64", offsets.nbytes)]
    builder = TensorBuilder(_Arrays(leaves), np.dtype(np.float32))

    def make(info: TensorInfo) -> np.ndarray:
        return builder.build(weights[info.name]) if info.name in weights else offsets

    folder.mkdir(parents=True, exist_ok=True)
    write_shard(folder / SINGLE, [*(tensor.info for tensor in weights.values()), *others], make)
    write_json(folder / "config.json", eagle3.to_hf(config))


@dataclass(frozen=True, slots=True)
class _Arrays:
    """`Leaves` in memory, by path."""

    arrays: dict[str, np.ndarray]

    def read(self, part: Part, name: str) -> np.ndarray:
        leaf = self.arrays[part.leaves[name]]
        return leaf if part.index is None else leaf[part.index]


def _saved(leaf: Any) -> np.ndarray:
    return np.stack(leaf) if is_tuple(leaf) else np.asarray(leaf)


def _error(message: str) -> ConfigError:
    return ConfigError(f"{PARAM}: {message}", PARAM)
