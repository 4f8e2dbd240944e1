"""Wiring: conversion of a model from any readable format into a Hugging Face folder or an Orbax folder.

Weights pass through host memory a leaf of a layer at a time (for Orbax a layer). Safetensors files and parts of Orbax
are written atomically; a manifest lists the complete ones, so that an interrupted conversion continues after them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from checkpoints.adapters.low_rank import AdapterWeights
from checkpoints.loading.leaf_reader import Leaves, OrbaxLeaves, TensorLeaves
from checkpoints.loading.pieces import Progress
from checkpoints.mapping.parts import SavedTree
from checkpoints.mapping.rules import Rule
from checkpoints.open_checkpoint import Checkpoint, open_checkpoint
from checkpoints.quantized.forms.all_forms import form_of
from checkpoints.quantized.forms.outlier_form import OutlierForm
from checkpoints.quantized.forms.written_form import WrittenForm
from checkpoints.sources import ResolvedSource
from checkpoints.writing.conversion_manifest import ConversionManifest, identity
from checkpoints.writing.write_orbax import write_orbax
from checkpoints.writing.write_safetensors import parts_to_write, write_safetensors
from jaxserve.convert.folded_leaves import AFTER_NORMS, FoldedLeaves, InputScales
from jaxserve.convert.layer_sums import InputSums
from jaxserve.convert.merged_leaves import MergedLeaves, adapter_digest
from jaxserve.convert.output_dir import prepare
from jaxserve.core.hardware.mesh import abstract_mesh
from jaxserve.engine.build.adapter_reading import matrix_shapes
from jaxserve.engine.build.hf_files import SMALL_FILES, export_source, gguf_text
from jaxserve.engine.build.model_source import choose_dtype
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.runner.load_weights import TENSOR_NAMES, dims, read_config
from jaxserve.runner.orbax_io import saved_structs


@dataclass(frozen=True, slots=True)
class ConversionTarget:
    """What to write. dtype "auto": float32 where the source declares it, otherwise bfloat16. scheme: in which the
    matrices of the layers are quantized, a name in `FORMS`; None: they are like the others. num_outliers: columns of
    each matrix in w8a8 that may stay as they are, chosen by `sums` of `LARGEST`."""

    folder: Path
    format: Literal["orbax", "safetensors"]
    dtype: str
    max_shard_bytes: int
    is_overwritten: bool = False
    scheme: str | None = None
    num_outliers: int = 0


def convert(
    source: ResolvedSource,
    target: ConversionTarget,
    progress: Progress,
    scales: InputScales | None = None,
    sums: InputSums | None = None,
    adapter: AdapterWeights | None = None,
) -> bool:
    """Writes `target`; False where an earlier run has finished it. progress(done, total): called with bytes written.
    scales: of the inputs of matrices that are quantized; None: they stay as they are. sums: for schemes of AWQ
    and GPTQ, NF4 by GPTQ, and outliers. Both are asked for only while matrices are written. adapter: is added to the
    matrices, in float32.

    Raises `CheckpointError` where the source lacks what the described model needs, or the folder is in use.
    """
    with open_checkpoint(source) as checkpoint:
        model = read_config(checkpoint)
        dtype = choose_dtype(target.dtype, model.dtype)
        form = _form(target, dtype, is_calibrated=sums is not None)
        is_changed = form is not None or adapter is not None
        tree = saved_tree(model, jnp.dtype(jnp.float32) if is_changed else dtype)
        leaves = leaves_of(checkpoint, model, tree)
        if adapter is not None:
            leaves = MergedLeaves(leaves, adapter, rules_of("hf", model), matrix_shapes(model))
        if scales is not None:
            leaves = FoldedLeaves(leaves, scales)
        whole = frozenset(AFTER_NORMS) if scales is not None else frozenset[str]()  # Gemma's norms are stored less one
        inputs = None if sums is None else sums.of
        parts = parts_to_write(tree, rules_of("hf", model), leaves, dtype, form, whole, inputs)
        text = gguf_text(checkpoint)
        prepare(target.folder, source.folder, is_overwritten=target.is_overwritten)
        manifest = ConversionManifest(target.folder, _identity(source, target, dtype, scales or sums, adapter))
        if manifest.is_finished:
            return False
        export_source(target.folder, checkpoint, model, dtype.name, text, None if form is None else form.config())
        manifest.add(*(path.name for path in _small_files(target.folder)))
        if target.format == "orbax":
            write_orbax(target.folder, tree, leaves, manifest, progress)
        else:
            limit = target.max_shard_bytes
            write_safetensors(target.folder, parts, manifest, progress, max_shard_bytes=limit)
        manifest.finish()
        return True


def _form(target: ConversionTarget, dtype: np.dtype, *, is_calibrated: bool) -> WrittenForm | None:
    if target.num_outliers:
        return OutlierForm(target.num_outliers, dtype)
    return None if target.scheme is None else form_of(target.scheme, is_calibrated=is_calibrated)


def saved_tree(model: ModelConfig, dtype: jnp.dtype) -> SavedTree:
    """The tree of a model in its saved form."""
    structs = saved_structs(model, dtype)
    shapes = {path: struct.shape for path, struct in structs.items()}
    dtypes = {path: np.dtype(struct.dtype) for path, struct in structs.items()}
    return SavedTree(shapes, dtypes, dims(model, abstract_mesh(1)).layer_slots)


def rules_of(spelling: str, model: ModelConfig) -> tuple[Rule, ...]:
    """The names of a model's tensors in files of a spelling."""
    return TENSOR_NAMES[model.family].rules(spelling, dims(model, abstract_mesh(1)))


def leaves_of(checkpoint: Checkpoint, model: ModelConfig, tree: SavedTree) -> Leaves:
    """Those of the tree, read from a checkpoint of any spelling."""
    if checkpoint.spelling == "orbax":
        return OrbaxLeaves(checkpoint, tree)
    return TensorLeaves(checkpoint, tree, rules_of(checkpoint.spelling, model))


def _identity(
    source: ResolvedSource,
    target: ConversionTarget,
    dtype: jnp.dtype,
    calibration: InputScales | InputSums | None,
    adapter: AdapterWeights | None,
) -> dict[str, Any]:
    """What must be equal for an interrupted conversion to continue."""
    limit = target.max_shard_bytes if target.format == "safetensors" else None
    return {
        "source": identity(source.files + ([] if source.format == "gguf" else _small_files(source.folder))),
        "format": target.format,
        "dtype": dtype.name,
        "max_shard_bytes": limit,
        "scheme": target.scheme,
        "outliers": target.num_outliers,
        "calibration": None if calibration is None else calibration.digest,
        "adapter": None if adapter is None else adapter_digest(adapter),
    }


def _small_files(folder: Path) -> list[Path]:
    return [folder / name for name in SMALL_FILES if (folder / name).is_file()]
