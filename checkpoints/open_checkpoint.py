"""Host: a resolved source, opened: its tensors, its configuration, and in whose words both are spelled."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from checkpoints.config_file import read_config, read_config_and_scheme
from checkpoints.errors import CheckpointError
from checkpoints.formats.fp8 import decoded
from checkpoints.formats.gguf import GgufFile
from checkpoints.formats.orbax_folder import OrbaxFile
from checkpoints.formats.safetensors import SafetensorsFile, ShardedSafetensors
from checkpoints.formats.tensor_file import TensorFile, TensorInfo
from checkpoints.sources import ResolvedSource


@dataclass(frozen=True)
class Checkpoint:
    """An open checkpoint.

    `config` is the parsed config.json, without what it says of quantised weights, as those read as plain ones; empty
    for "gguf", whose `metadata` holds the file's key-values. "orbax" files hold leaves of the tree.
    """

    spelling: Literal["hf", "gguf", "orbax"]
    folder: Path
    weights: Path
    config: dict[str, Any]
    file: TensorFile

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        return self.file.tensors

    @property
    def metadata(self) -> dict[str, Any]:
        return self.file.metadata

    def read_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows `[start, stop)` of a tensor; see `formats.base.TensorFile`."""
        return self.file.read_rows(name, start, stop)

    def close(self) -> None:
        self.file.close()

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def open_checkpoint(resolved: ResolvedSource) -> Checkpoint:
    """Opens and checks the files of a source; raises `CheckpointError` naming the file and its fault."""
    weights, folder = resolved.weights, resolved.folder
    if resolved.format == "gguf":
        return Checkpoint("gguf", folder, weights, {}, GgufFile(weights))
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder}: has no config.json beside {weights.name}; copy the model's whole folder")
    if resolved.format == "orbax":
        return Checkpoint("orbax", folder, weights, read_config(folder), OrbaxFile(weights))
    config, scheme = read_config_and_scheme(folder)
    file = ShardedSafetensors(weights) if weights.suffix == ".json" else SafetensorsFile(weights)
    return Checkpoint("hf", folder, weights, config, decoded(file, scheme, str(weights)))
