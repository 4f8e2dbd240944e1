"""Host: weights saved by Orbax: a folder `orbax/` of small checkpoints, one per `parts.Part`, and an index of them.

Each part is a checkpoint that Orbax writes atomically. The index (`orbax_index.py`), written last, lists every array.
Orbax and jax are imported when a part is read or written.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from checkpoints.errors import CheckpointError, reason_of
from checkpoints.formats.orbax_index import DTYPES, read_index
from checkpoints.formats.tensor_file import TensorInfo, check_rows

if TYPE_CHECKING:
    from checkpoints.formats.saved_matrix import SavedMatrix

FOLDER = "orbax"
CHUNK_BYTES = 32 * 2**20  # unit of reading: a device that needs a shard of a large leaf reads little more than it


class OrbaxFile:
    """An `orbax/` folder whose index has been checked (a `TensorFile`; its tensors are named "<part>/<leaf>").

    Tensors are whole matrices, also those that lie packed in several arrays; their rows are read decoded.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.metadata: dict[str, Any] = {}
        self._index = read_index(root)
        self.tensors: dict[str, TensorInfo] = self._index.tensors
        self._cached: tuple[str, dict[str, np.ndarray]] = ("", {})

    def read_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        info = self.tensors[name]
        check_rows(info, start, stop)
        part, _, leaf = name.partition("/")
        if self._cached[0] != part:
            self._cached = (part, self._read_part(part))
        values = self._cached[1].get(leaf)
        if values is None:
            values = self._decoded(part, leaf)
        return values.reshape(info.num_rows, info.row_len)[start:stop].copy()

    def close(self) -> None:
        self._cached = ("", {})

    def arrays_of(self, part: str) -> dict[str, TensorInfo]:
        """The arrays of a part, by name."""
        return self._index.arrays.get(part, {})

    def packed_of(self, part: str) -> "dict[str, SavedMatrix]":
        """The matrices of a part that lie packed in several arrays, by name."""
        return self._index.matrices.get(part, {})

    def _decoded(self, part: str, leaf: str) -> np.ndarray:
        from pallas_kernels.packed_values import packed_values  # imports jax

        matrix = self.packed_of(part)[leaf]
        return np.asarray(packed_values(matrix.checked(str(self.root / part), self._cached[1])))

    def _read_part(self, part: str) -> dict[str, np.ndarray]:
        arrays = self.arrays_of(part)
        blank = {name: np.empty(info.shape, DTYPES[info.dtype]) for name, info in arrays.items()}
        return {name: np.asarray(array) for name, array in load_part(self.root, part, blank).items()}


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
