"""The golden checkpoints with all sizes doubled, so that every row is a whole number of blocks of 32."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.support.golden_data import checkpoint

SIZES = ("hidden_size", "intermediate_size", "head_dim", "vocab_size", "query_pre_attn_scalar")
# What GGUF cannot say of the goldens: other patterns of windows than the vendors', and YaRN in Qwen 3.
CHANGES: dict[str, dict[str, Any]] = {
    "qwen2": {"use_sliding_window": False, "layer_types": None, "sliding_window": None},
    "qwen3": {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}},
    "gemma3": {"layer_types": None},
}


def doubled(family: str, folder: Path, **changes: Any) -> Path:
    """Writes the checkpoint of a family into a new folder."""
    folder.mkdir()
    config = json.loads((checkpoint(family) / "config.json").read_text()) | CHANGES.get(family, {}) | changes
    config |= {name: 2 * config[name] for name in SIZES if name in config}
    rope = config["rope_parameters"]
    config["rope_parameters"] = {k: 2 * v if isinstance(v, list) else v for k, v in rope.items()}
    (folder / "config.json").write_text(json.dumps(config))
    rng, tensors = np.random.default_rng(0), load_file(checkpoint(family) / "model.safetensors")
    larger = {
        name: (rng.standard_normal([2 * size for size in tensor.shape]) * tensor.std()).astype(np.float32)
        for name, tensor in tensors.items()
    }
    save_file(larger, folder / "model.safetensors")
    return folder
