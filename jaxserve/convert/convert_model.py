"""Wiring: a model in any form that can be read, written as a Hugging Face folder or as an Orbax folder.

Weights pass through host memory a leaf of a layer at a time (for Orbax a layer). Files of safetensors and parts of
Orbax appear whole; a manifest lists those that are done, so an interrupted conversion goes on behind them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from checkpoints.loading.leaf_reader import Leaves, OrbaxLeaves, TensorLeaves
from checkpoints.mapping.parts import SavedTree
from checkpoints.mapping.rules import Rule
from checkpoints.open_checkpoint import Checkpoint, open_checkpoint
from checkpoints.sources import ResolvedSource
from checkpoints.writing.conversion_manifest import ConversionManifest, identity
from checkpoints.writing.write_orbax import write_orbax
from checkpoints.writing.write_safetensors import write_safetensors
from jaxserve.convert.output_dir import prepare
from jaxserve.core.hardware.mesh import abstract_mesh
from jaxserve.engine.build.hf_files import SMALL_FILES, export_source
from jaxserve.engine.build.model_source import choose_dtype
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.runner.load_weights import MAPS, dims, read_config
from jaxserve.runner.orbax_io import saved_structs

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ConversionTarget:
    """What is to be written. `dtype` "auto": float32 where the source says so, else bfloat16."""

    folder: Path
    format: Literal["orbax", "safetensors"]
    dtype: str
    max_shard_bytes: int
    is_overwritten: bool = False


def convert(source: ResolvedSource, target: ConversionTarget, progress: Progress) -> bool:
    """Writes `target`; False if an earlier run had finished it. `progress(done, total)` is told bytes written.

    Raises `CheckpointError` where the source does not fit the model that it describes, or the folder is in use.
    """
    with open_checkpoint(source) as checkpoint:
        model = read_config(checkpoint)
        dtype = choose_dtype(target.dtype, model.dtype)
        tree = _tree(model, dtype)
        leaves = _leaves(checkpoint, model, tree)
        prepare(target.folder, source.folder, is_overwritten=target.is_overwritten)
        manifest = ConversionManifest(target.folder, _job(source, target, dtype))
        if manifest.is_finished:
            return False
        export_source(target.folder, checkpoint, model, dtype.name)
        manifest.add(*(path.name for path in _small_files(target.folder)))
        if target.format == "orbax":
            write_orbax(target.folder, tree, leaves, manifest, progress)
        else:
            rules, limit = _rules("hf", model), target.max_shard_bytes
            options: dict[str, Any] = {"dtype": dtype, "max_shard_bytes": limit}
            write_safetensors(target.folder, tree, rules, leaves, manifest, progress, **options)
        manifest.finish()
        return True


def _tree(model: ModelConfig, dtype: jnp.dtype) -> SavedTree:
    structs = saved_structs(model, dtype)
    shapes = {path: struct.shape for path, struct in structs.items()}
    dtypes = {path: np.dtype(struct.dtype) for path, struct in structs.items()}
    return SavedTree(shapes, dtypes, dims(model, abstract_mesh(1)).layer_slots)


def _rules(spelling: str, model: ModelConfig) -> tuple[Rule, ...]:
    return MAPS[model.family].rules(spelling, dims(model, abstract_mesh(1)))


def _leaves(checkpoint: Checkpoint, model: ModelConfig, tree: SavedTree) -> Leaves:
    if checkpoint.spelling == "orbax":
        return OrbaxLeaves(checkpoint, tree)
    return TensorLeaves(checkpoint, tree, _rules(checkpoint.spelling, model))


def _job(source: ResolvedSource, target: ConversionTarget, dtype: jnp.dtype) -> dict[str, Any]:
    """What must be the same for a conversion to go on."""
    limit = target.max_shard_bytes if target.format == "safetensors" else None
    return {
        "source": identity(source.files + ([] if source.format == "gguf" else _small_files(source.folder))),
        "format": target.format,
        "dtype": dtype.name,
        "max_shard_bytes": limit,
    }


def _small_files(folder: Path) -> list[Path]:
    return [folder / name for name in SMALL_FILES if (folder / name).is_file()]
