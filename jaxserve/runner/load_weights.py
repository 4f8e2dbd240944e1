"""Device: a model's configuration and weights from a checkpoint, the weights in their sharding on the mesh."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from jax.sharding import Mesh

from checkpoints.load import load
from checkpoints.mapping.rules import ModelDims
from checkpoints.open_checkpoint import Checkpoint
from checkpoints.tensor_names import gemma2_names, gemma3_names, llama_names, phi3_names, qwen2_names, qwen3_names
from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import AnyMesh
from jaxserve.models.config import rope_gguf
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.families import registry
from jaxserve.models.kv_heads import num_kv_heads_on
from jaxserve.models.params import Params, targets

TENSOR_NAMES: dict[str, ModuleType] = {
    "llama": llama_names,
    "mistral": llama_names,
    "qwen2": qwen2_names,
    "qwen3": qwen3_names,
    "gemma2": gemma2_names,
    "gemma3": gemma3_names,
    "phi3": phi3_names,
}


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The `ModelConfig` of a checkpoint; raises ConfigError for one of more layers than the checkpoint has tensors.

    A damaged number of layers is found here, before lists with an entry for each are built.
    """
    _check_num_layers(checkpoint)
    if checkpoint.spelling != "gguf":
        return registry.from_hf(checkpoint.config)
    tables = {
        name: tuple(float(f) for f in checkpoint.file.read_rows(name, 0, 1).reshape(-1))
        for name in rope_gguf.TABLES
        if name in checkpoint.tensors
    }
    is_tied = "output.weight" not in checkpoint.tensors
    return registry.from_gguf(checkpoint.metadata, is_tied=is_tied, rope_tables=tables)


def _check_num_layers(checkpoint: Checkpoint) -> None:
    is_gguf, tensors = checkpoint.spelling == "gguf", checkpoint.tensors
    key = f"{checkpoint.metadata.get('general.architecture')}.block_count" if is_gguf else "num_hidden_layers"
    count: Any = (checkpoint.metadata if is_gguf else checkpoint.config).get(key)
    # An Orbax folder has the layers of a kind in one tensor.
    largest = max((t.shape[0] for t in tensors.values() if t.shape), default=0)
    most = largest if checkpoint.spelling == "orbax" else len(tensors)
    if isinstance(count, int) and count > most:
        raise ConfigError(
            f"{key}={count} is more than the layers that {checkpoint.weights.name} can hold", param="model"
        )


def load_params(
    checkpoint: Checkpoint,
    config: ModelConfig,
    mesh: Mesh,
    specs: Params,
    progress: Callable[[int, int], None] | None = None,
) -> Params:
    """Read every tensor directly into its shape, dtype and sharding, as `specs` declare them."""
    rules = TENSOR_NAMES[config.family].rules(checkpoint.spelling, dims(config, mesh))
    return load(checkpoint, targets(specs, mesh), rules, progress=progress)


def dims(config: ModelConfig, mesh: AnyMesh) -> ModelDims:
    """The sizes that rules depend on."""
    return ModelDims(
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        vocab_size=config.vocab_size,
        kv_repeat=num_kv_heads_on(config, mesh) // config.num_kv_heads,
        layer_slots=tuple((config.stacks[row.stack].name, row.index_in_stack) for row in config.layer_table),
        is_tied=config.is_tied,
    )
