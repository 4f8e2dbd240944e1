"""Host: `open_checkpoint`: opens a resolved source: its tensors, its configuration, and the naming of both."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from checkpoints.errors import CheckpointError
from checkpoints.formats.gguf import GgufFile
from checkpoints.formats.orbax_folder import OrbaxFile
from checkpoints.formats.safetensors import SafetensorsFile, ShardedSafetensors
from checkpoints.formats.tensor_file import TensorFile, TensorInfo
from checkpoints.quantized.config_file import read_config, read_config_and_scheme
from checkpoints.quantized.quantized_file import decoded
from checkpoints.sources import ResolvedSource


@dataclass(frozen=True)
class Checkpoint:
    """An open checkpoint.

    spelling: the naming of tensors and configuration: "hf" (Hugging Face), "gguf" (llama.cpp) or "orbax" (leaves of the
    parameter tree). config: the parsed config.json without its quantization keys, since quantized weights are decoded
    when read; empty for "gguf", whose key-values are in `metadata`.
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

    def close(self) -> None:
        self.file.close()

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def open_checkpoint(resolved: ResolvedSource) -> Checkpoint:
    """Opens and checks the files of a source; raises `CheckpointError` with the file and what is wrong with it."""
    weights, folder = resolved.weights, resolved.folder
    if resolved.format == "gguf":
        return Checkpoint("gguf", folder, weights, {}, GgufFile(weights))
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder}: has no config.json next to {weights.name}; copy the model's whole folder")
    if resolved.format == "orbax":
        return Checkpoint("orbax", folder, weights, read_config(folder), OrbaxFile(weights))
    config, scheme = read_config_and_scheme(folder)
    file = ShardedSafetensors(weights) if weights.suffix == ".json" else SafetensorsFile(weights)
    return Checkpoint("hf", folder, weights, config, decoded(file, scheme, str(weights)))
