"""Host: `read_adapter`: reads an adapter in PEFT's files for a model."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np

from checkpoints.adapters.adapter_config import read_adapter_config
from checkpoints.adapters.adapter_modules import AdapterModule, adapter_modules
from checkpoints.adapters.adapter_source import WEIGHTS, find_adapter
from checkpoints.adapters.low_rank import AdapterWeights, LowRank
from checkpoints.adapters.module_scales import module_scales
from checkpoints.errors import CheckpointError
from checkpoints.formats.safetensors import SafetensorsFile
from checkpoints.formats.tensor_file import TensorFile, TensorInfo

_HEADER_BYTES = 30_000_000
_FLOAT32_BYTES = 4


def read_adapter(
    path: str,
    shapes: dict[str, tuple[int, int]],
    num_layers: int,
    max_rank: int,
    *,
    token: str | None = None,
    cache_dir: str | None = None,
) -> AdapterWeights:
    """An adapter of a model with such matrices, (outputs, inputs) by name, in each of its layers.

    path: a folder, gs://BUCKET/FOLDER or a Hugging Face id. Values are read when all names, shapes and ranks fit: every
    tensor is used once, and every module that the configuration targets has its two. Raises `SourceError` where there
    are no such files, `CheckpointError` for files that are malformed, do not fit, or hold values that are not finite.
    """
    largest = _HEADER_BYTES + _FLOAT32_BYTES * num_layers * max_rank * sum(map(sum, shapes.values()))
    folder = find_adapter(
        path, max_bytes=largest, cache_dir=None if cache_dir is None else Path(cache_dir), token=token
    )
    config = read_adapter_config(folder)
    where = str(folder / WEIGHTS)
    with closing(SafetensorsFile(folder / WEIGHTS)) as file:
        modules = adapter_modules(where, file.tensors, shapes, num_layers, max_rank)
        scales = module_scales(where, config, modules, num_layers)
        matrices = dict[tuple[int, str], LowRank]()
        for module in modules:
            a, b = (_values(where, file, info) for info in (module.a, module.b))
            with np.errstate(over="ignore"):
                b = _finite(where, module.b.name, b * np.float32(scales[module.name]))
            matrices |= {(module.layer, part): LowRank(a, rows) for part, rows in _divided(module, b, shapes)}
    return AdapterWeights(dict(sorted(matrices.items())), str(folder))


def _values(where: str, file: TensorFile, info: TensorInfo) -> np.ndarray:
    return _finite(where, info.name, file.read_rows(info.name, 0, info.num_rows).astype(np.float32, copy=False))


def _finite(where: str, name: str, values: np.ndarray) -> np.ndarray:
    if not np.isfinite(values).all():
        raise CheckpointError(f"{where}: tensor {name!r} holds values that are not finite; train the adapter again")
    return values


def _divided(
    module: AdapterModule, b: np.ndarray, shapes: Mapping[str, tuple[int, int]]
) -> Iterator[tuple[str, np.ndarray]]:
    """The rows of b for each matrix of a module."""
    start = 0
    for part in module.parts:
        stop = start + shapes[part][0]
        yield part, np.ascontiguousarray(b[start:stop])
        start = stop
