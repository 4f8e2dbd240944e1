"""Device: a model's weights on its mesh, from a checkpoint or at random."""

from collections.abc import Callable
from types import ModuleType

import jax.numpy as jnp
from jax.sharding import Mesh

from checkpoints.load import load
from checkpoints.maps import gemma3, llama
from checkpoints.open import Checkpoint
from checkpoints.rules import ModelDims
from jaxserve.models import registry
from jaxserve.models.config import ModelConfig
from jaxserve.models.kv import num_kv_heads_on
from jaxserve.models.params import Params, declare, targets

MAPS: dict[str, ModuleType] = {"llama": llama, "gemma3": gemma3}


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The model that a checkpoint describes."""
    if checkpoint.spelling == "hf":
        return registry.from_hf(checkpoint.config)
    factors = None
    if "rope_freqs.weight" in checkpoint.tensors:
        factors = tuple(float(f) for f in checkpoint.read_rows("rope_freqs.weight", 0, 1).reshape(-1))
    is_tied = "output.weight" not in checkpoint.tensors
    return registry.from_gguf(checkpoint.metadata, is_tied=is_tied, rope_factors=factors)


def load_params(
    checkpoint: Checkpoint,
    config: ModelConfig,
    mesh: Mesh,
    dtype: jnp.dtype,
    progress: Callable[[int, int], None] | None = None,
) -> Params:
    """Read every tensor straight into its place, dtype and sharding."""
    specs = declare(config, mesh, dtype)
    rules = MAPS[config.family].rules(checkpoint.spelling, dims(config, mesh))
    return load(checkpoint, targets(specs, mesh), rules, progress=progress)


def dims(config: ModelConfig, mesh: Mesh) -> ModelDims:
    """What weight maps must know of a model."""
    return ModelDims(
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        vocab_size=config.vocab_size,
        kv_repeat=num_kv_heads_on(config, mesh) // config.num_kv_heads,
        layer_slots=tuple((config.kinds[row.kind].name, row.index_in_kind) for row in config.layer_table),
        is_tied=config.is_tied,
    )
