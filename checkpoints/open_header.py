"""Host: `open_header`: opens a Hugging Face hub model from its headers alone, to describe it without its weights."""

import math
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.fetch.hf_hub_header import fetch_header
from checkpoints.formats.safetensors import DTYPES
from checkpoints.formats.tensor_file import TensorInfo
from checkpoints.open_checkpoint import Checkpoint
from checkpoints.quantized.config_file import read_config_and_scheme
from checkpoints.quantized.quantized_file import decoded

# Parts of quantized weights that decide their shapes and their forms on devices: groups of inputs, scales of blocks,
# and what bitsandbytes says of 4 bits.
_DESCRIBING = re.compile(
    r"(g_idx|weight_shape|_scale|_scale_inv|\.(nested_)?quant_map|\.quant_state\.bitsandbytes__\w+)$"
)
_MAX_BYTES = 2**20  # of such a part; the scales of 53248 x 16384 weights in blocks of 128 x 128 have 212,992
_INDEX = re.compile(r"\.[0-9]+\.")
_Part = tuple[str, tuple[int, ...], str]
_Kind = tuple[str, tuple[_Part, ...]]


class HeaderFile:
    """A `ColumnFile` of declared tensors whose values were not fetched, but for small ones that describe weights.

    Of modules that differ only in the layer's index, with tensors of the same types and shapes, those of the first
    layer are fetched, and stand for the others: a few dozen requests describe a model. fetch: gives the bytes of a
    tensor, by its name.
    """

    def __init__(self, tensors: dict[str, TensorInfo], fetch: Callable[[str], bytes]) -> None:
        self.tensors = tensors
        self.metadata: dict[str, Any] = {}
        self._fetch = fetch
        self._found: dict[str, np.ndarray] = {}
        self._kinds = _kinds(tensors)
        self._first: dict[_Kind, str] = {}
        # The same layer for all kinds: queries and keys of different layers have inputs in different orders.
        for name in sorted(tensors, key=lambda name: (len(name), name)):
            self._first.setdefault(self._kinds[name], name)

    def read_columns(self, name: str, start: int, stop: int) -> np.ndarray:
        raise _not_fetched(name)

    def read_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        info = self.tensors[name]
        if not _DESCRIBING.search(name) or info.nbytes > _MAX_BYTES or info.dtype not in DTYPES:
            raise _not_fetched(name)
        first = self._first[self._kinds[name]]
        if first not in self._found:
            self._found[first] = _values(self.tensors[first], self._fetch)
        return self._found[first][start:stop].copy()

    def close(self) -> None: ...


def _kinds(tensors: dict[str, TensorInfo]) -> dict[str, _Kind]:
    """Of each tensor its name without the index, and all tensors of its module."""
    modules: dict[str, list[_Part]] = defaultdict(list)
    for name in sorted(tensors):
        module, _, part = name.rpartition(".")
        modules[module].append((part, tensors[name].shape, tensors[name].dtype))
    parts = {module: tuple(own) for module, own in modules.items()}
    return {name: (_INDEX.sub(".*.", name), parts[name.rpartition(".")[0]]) for name in tensors}


def _values(info: TensorInfo, fetch: Callable[[str], bytes]) -> np.ndarray:
    dtype = DTYPES[info.dtype]
    if info.nbytes != math.prod(info.shape) * dtype.itemsize:
        raise CheckpointError(f"tensor {info.name!r} of shape {list(info.shape)} cannot have {info.nbytes} bytes")
    return np.frombuffer(fetch(info.name), dtype).reshape(info.num_rows, info.row_len)


def _not_fetched(name: str) -> CheckpointError:
    return CheckpointError(f"tensor {name!r} has no values here: only its header was fetched")


def open_header(repo: str, cache_dir: Path | None, revision: str | None, token: str | None) -> Checkpoint | None:
    """The checkpoint without its weights' values; None where `fetch_header` returns None."""
    found = fetch_header(repo, cache_dir, revision, token)
    if found is None:
        return None
    folder = found.folder
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"the model {repo!r} has no config.json")
    config, scheme = read_config_and_scheme(folder)
    file = HeaderFile(found.tensors, found.read)
    return Checkpoint("hf", folder, folder / "model.safetensors", config, decoded(file, scheme, repo))
