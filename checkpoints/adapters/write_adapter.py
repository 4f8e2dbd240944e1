"""Host: `write_adapter`: writes an adapter in PEFT's files."""

from pathlib import Path
from typing import Any

import numpy as np

from checkpoints.adapters.adapter_config import CONFIG
from checkpoints.adapters.adapter_modules import PARTS
from checkpoints.adapters.adapter_source import WEIGHTS
from checkpoints.adapters.low_rank import AdapterWeights, LowRank
from checkpoints.formats.atomic_files import write_json
from checkpoints.formats.safetensors import DTYPES
from checkpoints.formats.safetensors_write import write_shard
from checkpoints.formats.tensor_file import TensorInfo

_MODULES = {parts[0]: module for module, parts in PARTS.items() if len(parts) == 1}


def write_adapter(
    folder: Path, adapter: AdapterWeights, *, dtype: str = "F32", scale: float = 1.0, base: str | None = None
) -> None:
    """With the names of families whose modules are not fused.

    dtype: as safetensors names it. scale: alpha / rank, by which the written b are divided. base: the model's name, for
    readers of the configuration.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = {key: f"model.layers.{key[0]}.{_MODULES[key[1]]}" for key in adapter.matrices}
    tensors = dict[str, np.ndarray]()
    for key, pair in adapter.matrices.items():
        tensors[f"base_model.model.{names[key]}.lora_A.weight"] = pair.a
        tensors[f"base_model.model.{names[key]}.lora_B.weight"] = pair.b / np.float32(scale)
    stored = DTYPES[dtype]
    infos = [TensorInfo(name, values.shape, dtype, values.size * stored.itemsize) for name, values in tensors.items()]
    write_shard(folder / WEIGHTS, infos, lambda info: tensors[info.name].astype(stored, copy=False))
    write_json(folder / CONFIG, _config(adapter, names, scale) | {"base_model_name_or_path": base})


def _config(adapter: AdapterWeights, names: dict[tuple[int, str], str], scale: float) -> dict[str, Any]:
    others = {key: pair.rank for key, pair in adapter.matrices.items() if pair.rank != adapter.rank}
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": adapter.rank,
        "lora_alpha": scale * adapter.rank,
        "rank_pattern": {names[key]: rank for key, rank in others.items()},
        "alpha_pattern": {names[key]: scale * rank for key, rank in others.items()},
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
        **_targets(adapter.matrices, names),
    }


def _targets(matrices: dict[tuple[int, str], LowRank], names: dict[tuple[int, str], str]) -> dict[str, Any]:
    """The same modules of some layers, or whole names."""
    layers, parts = sorted({layer for layer, _ in matrices}), sorted({part for _, part in matrices})
    if len(matrices) < len(layers) * len(parts):
        return {"target_modules": list(names.values())}
    return {"target_modules": [f"{part}_proj" for part in parts], "layers_to_transform": layers}
