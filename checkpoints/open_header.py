"""Host: `open_header`: opens a Hugging Face hub model from its headers alone, to describe it without its weights."""

from pathlib import Path
from typing import Any

import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.fetch.hf_hub_header import fetch_header
from checkpoints.formats.tensor_file import TensorInfo
from checkpoints.open_checkpoint import Checkpoint
from checkpoints.quantized.config_file import read_config_and_scheme
from checkpoints.quantized.quantized_file import decoded


class HeaderFile:
    """A `TensorFile` of declared tensors whose values were not fetched."""

    def __init__(self, tensors: dict[str, TensorInfo]) -> None:
        self.tensors = tensors
        self.metadata: dict[str, Any] = {}

    def read_columns(self, name: str, start: int, stop: int) -> np.ndarray:
        return self.read_rows(name, start, stop)

    def read_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        raise CheckpointError(f"tensor {name!r} has no values here: only its header was fetched")

    def close(self) -> None: ...


def open_header(repo: str, cache_dir: Path | None, revision: str | None, token: str | None) -> Checkpoint | None:
    """The checkpoint without its tensors' values; None where `fetch_header` returns None."""
    found = fetch_header(repo, cache_dir, revision, token)
    if found is None:
        return None
    folder, tensors = found
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"the model {repo!r} has no config.json")
    config, scheme = read_config_and_scheme(folder)
    weights = folder / "model.safetensors"
    return Checkpoint("hf", folder, weights, config, decoded(HeaderFile(tensors), scheme, repo))
