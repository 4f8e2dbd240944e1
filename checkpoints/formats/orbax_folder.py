"""Host: weights saved by Orbax: a folder `orbax/` of small checkpoints, one per `parts.Part`, and an index of them.

Each part is a checkpoint that Orbax writes atomically. `index.json`, written last, lists every leaf with shape and
dtype. Orbax and jax are imported when a part is read or written.
"""

import math
import re
import shutil
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np

from checkpoints.errors import CheckpointError, reason_of
from checkpoints.formats.atomic_files import write_json
from checkpoints.formats.bounded_json import read_object
from checkpoints.formats.tensor_file import TensorInfo, check_rows

FOLDER, INDEX = "orbax", "index.json"
CHUNK_BYTES = 32 * 2**20  # unit of reading: a device that needs a shard of a large leaf reads little more than it
_FORMAT = "jaxserve-orbax-1"
_MAX_INDEX_BYTES = 25_000_000
_DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
_PART_NAME = re.compile(r"[a-z0-9-]{1,64}")
_LEAF_NAME = re.compile(r"[A-Za-z0-9_.]{1,128}")


class OrbaxFile:
    """An `orbax/` folder whose index has been checked (a `TensorFile`; its tensors are named "<part>/<leaf>")."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, TensorInfo] = {}
        index = read_object(root / INDEX, _MAX_INDEX_BYTES)
        parts: Any = index.get("parts")
        if index.get("format") != _FORMAT or not isinstance(parts, dict):
            raise CheckpointError(f"{root / INDEX}: is not an index in the format {_FORMAT}")
        for part, leaves in cast(dict[str, Any], parts).items():
            if not _PART_NAME.fullmatch(part) or not isinstance(leaves, dict):
                raise CheckpointError(f"{root / INDEX}: {part!r} is not a part")
            for name, entry in cast(dict[str, Any], leaves).items():
                self._add(part, name, entry)
        self._cached: tuple[str, dict[str, np.ndarray]] = ("", {})

    def read_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        info = self.tensors[name]
        check_rows(info, start, stop)
        part = name.partition("/")[0]
        if self._cached[0] != part:
            self._cached = (part, self._read_part(part))
        return self._cached[1][name].reshape(info.num_rows, info.row_len)[start:stop].copy()

    def close(self) -> None:
        self._cached = ("", {})

    def leaves_of(self, part: str) -> dict[str, TensorInfo]:
        """The leaves of a part, by name."""
        return self._by_part.get(part, {})

    @cached_property
    def _by_part(self) -> dict[str, dict[str, TensorInfo]]:
        found: dict[str, dict[str, TensorInfo]] = {}
        for name, info in self.tensors.items():
            part, _, leaf = name.partition("/")
            found.setdefault(part, {})[leaf] = info
        return found

    def _read_part(self, part: str) -> dict[str, np.ndarray]:
        leaves = self.leaves_of(part)
        blank = {leaf: np.empty(info.shape, _DTYPES[info.dtype]) for leaf, info in leaves.items()}
        return {f"{part}/{leaf}": np.asarray(array) for leaf, array in load_part(self.root, part, blank).items()}

    def _add(self, part: str, name: str, entry: Any) -> None:
        where = f"{self.root / INDEX}: {part}/{name}"
        shape: list[Any]
        match entry:
            case {"shape": [*shape], "dtype": str(dtype)} if dtype in _DTYPES and _LEAF_NAME.fullmatch(name):
                pass
            case _:
                raise CheckpointError(f"{where} must have a shape and a dtype, one of {', '.join(_DTYPES)}")
        if len(shape) > 8 or not all(type(size) is int and 0 < size < 2**48 for size in shape):
            raise CheckpointError(f"{where} must have at most 8 axes, each a size from 1 to 2**48")
        nbytes = math.prod(shape) * _DTYPES[dtype].itemsize
        self.tensors[f"{part}/{name}"] = TensorInfo(f"{part}/{name}", tuple(shape), dtype, nbytes)


def is_index(path: Path) -> bool:
    """Whether `path` is an index in the format of this module."""
    return path.is_file() and read_object(path, _MAX_INDEX_BYTES).get("format") == _FORMAT


def save_part(root: Path, part: str, arrays: Mapping[str, Any]) -> None:
    """Writes one part of numpy arrays or sharded jax arrays; replaces a part of the same name."""
    from orbax.checkpoint import v1 as ocp  # pyright: ignore[reportMissingTypeStubs]

    context = ocp.Context()
    context.array.saving.storage_options.chunk_byte_size = CHUNK_BYTES
    with context:
        ocp.save(_path(root, part), dict(arrays), overwrite=True)


def remove_part(root: Path, part: str) -> None:
    """Removes a part and what a killed process left of it."""
    for left in root.glob(f"{part}*"):
        shutil.rmtree(left)


def load_part(root: Path, part: str, structs: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of a part, each with the shape, dtype and sharding of its struct; a numpy struct gives numpy."""
    from orbax.checkpoint import v1 as ocp  # pyright: ignore[reportMissingTypeStubs]

    try:
        arrays = ocp.load(_path(root, part), dict(structs))
        for name, struct in structs.items():  # numpy arrays arrive in the stored shape
            if arrays[name].shape != struct.shape:
                raise ValueError(f"{name} is {list(arrays[name].shape)}, not {list(struct.shape)} as in the index")
        return arrays
    except Exception as error:  # from Orbax, its storage library and the system
        raise CheckpointError(
            f"{root / part}: cannot be restored ({reason_of(error)}); if it is damaged, convert again"
        ) from error


def _path(root: Path, part: str) -> str:
    """Orbax refuses relative paths."""
    return str((root / part).absolute())


def write_index(root: Path, parts: Mapping[str, Mapping[str, tuple[tuple[int, ...], str]]]) -> None:
    """Completes a folder: `parts` gives (shape, dtype) of every leaf of every part."""
    table = {
        part: {name: {"shape": list(shape), "dtype": dtype} for name, (shape, dtype) in leaves.items()}
        for part, leaves in parts.items()
    }
    write_json(root / INDEX, {"format": _FORMAT, "parts": table})
