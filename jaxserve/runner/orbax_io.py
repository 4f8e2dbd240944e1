"""Device: weights in Orbax folders, independent of the mesh: vocabulary unpadded, KV heads not repeated."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from checkpoints.formats.orbax_folder import OrbaxFile
from checkpoints.loading.orbax_restore import restore
from checkpoints.mapping.trees import by_path
from checkpoints.writing.orbax_save import save
from jaxserve.core.hardware.mesh import abstract_mesh
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.params import Params, declare, is_spec, targets
from jaxserve.runner.load_weights import dims


def saved_structs(config: ModelConfig, dtype: Any) -> dict[str, jax.ShapeDtypeStruct]:
    """Shape and dtype of every saved leaf, by path."""

    def struct(spec: Any) -> jax.ShapeDtypeStruct:
        rows = {"vocab": config.vocab_size}
        shape = tuple(rows.get(axis, size) for size, axis in zip(spec.shape, spec.axes, strict=True))
        return jax.ShapeDtypeStruct(shape, spec.dtype)

    return by_path(jax.tree.map(struct, declare(config, abstract_mesh(1), dtype), is_leaf=is_spec))


def saved_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    return {path: struct.shape for path, struct in saved_structs(config, jnp.float32).items()}


def restore_params(
    file: OrbaxFile,
    config: ModelConfig,
    mesh: Mesh,
    specs: Params,
    progress: Callable[[int, int], None] | None = None,
) -> Params:
    """Read weights saved from any mesh, in any dtype, as `specs` declare them; every device reads only its share."""
    return restore(file, targets(specs, mesh), saved_shapes(config), dims(config, mesh), progress=progress)


def save_params(root: Path, params: Params, config: ModelConfig, mesh: Mesh) -> None:
    """Write a model's weights from its mesh into the folder `root`."""
    save(root, params, saved_shapes(config), dims(config, mesh))
