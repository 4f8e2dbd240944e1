"""Host: writes safetensors files tensor by tensor, each file atomically."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from checkpoints.formats.atomic_files import whole_file
from checkpoints.formats.tensor_file import TensorInfo

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_ALIGNMENT = 8  # the header is padded with spaces to a multiple of this, so that tensors can be memory-mapped


def plan_shards(tensors: Sequence[TensorInfo], max_shard_bytes: int) -> dict[str, list[TensorInfo]]:
    """File name → its tensors, in order, as many per file as fit; a tensor over the limit has a file of its own."""
    shards: list[list[TensorInfo]] = [[]]
    room = max_shard_bytes
    for tensor in tensors:
        if shards[-1] and tensor.nbytes > room:
            shards.append([])
            room = max_shard_bytes
        shards[-1].append(tensor)
        room -= tensor.nbytes
    if len(shards) == 1:
        return {SINGLE: shards[0]}
    return {f"model-{i + 1:05}-of-{len(shards):05}.safetensors": shard for i, shard in enumerate(shards)}


def write_shard(path: Path, tensors: Sequence[TensorInfo], make: Callable[[TensorInfo], np.ndarray]) -> None:
    """Writes one file; `make` builds each tensor when it is written."""
    with whole_file(path) as file:
        file.write(_header(tensors))
        for tensor in tensors:
            values = make(tensor)
            if values.shape != tensor.shape or values.nbytes != tensor.nbytes:
                raise ValueError(f"{tensor.name} was built as {values.dtype}{list(values.shape)}, not as {tensor}")
            file.write(np.ascontiguousarray(values).view(np.uint8).data)


def index_of(shards: dict[str, list[TensorInfo]]) -> dict[str, object]:
    """The content of the file `INDEX`."""
    total = sum(tensor.nbytes for tensors in shards.values() for tensor in tensors)
    weight_map = {tensor.name: file for file, tensors in shards.items() for tensor in tensors}
    return {"metadata": {"total_size": total}, "weight_map": weight_map}


def _header(tensors: Sequence[TensorInfo]) -> bytes:
    entries = dict(_entries(tensors))
    text = json.dumps({"__metadata__": {"format": "pt"}, **entries}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _entries(tensors: Sequence[TensorInfo]) -> Iterator[tuple[str, dict[str, object]]]:
    start = 0
    for tensor in tensors:
        offsets = [start, start + tensor.nbytes]
        yield tensor.name, {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        start += tensor.nbytes
