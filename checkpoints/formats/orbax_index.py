"""Host: the index of an `orbax/` folder: the arrays of every part, and the matrices that lie packed in several arrays.

    {"format": "jaxserve-orbax-1", "parts": {part: {array: {"shape": […], "dtype": "…"}}}}
    {"format": "jaxserve-orbax-2", "parts": …, "forms": {part: {matrix: form, or list of the forms of its parts}}}

Folders without packed matrices have the first format. `SavedMatrix` names a packed matrix's arrays.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import ml_dtypes
import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.formats.atomic_files import write_json
from checkpoints.formats.bounded_json import read_object
from checkpoints.formats.tensor_file import TensorInfo

if TYPE_CHECKING:
    from checkpoints.formats.saved_matrix import SavedMatrix

INDEX = "index.json"
DENSE, PACKED = "jaxserve-orbax-1", "jaxserve-orbax-2"
MAX_BYTES = 25_000_000
NUMBERS = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
"""Of arrays that are whole leaves."""
DTYPES = NUMBERS | {
    "float16": np.dtype(np.float16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "uint8": np.dtype(np.uint8),
    "int8": np.dtype(np.int8),
    "int32": np.dtype(np.int32),
}
"""Of all arrays."""
_PART_NAME = re.compile(r"[a-z0-9-]{1,64}")
_LEAF_NAME = re.compile(r"[A-Za-z0-9_.]{1,128}")

Entry = tuple[tuple[int, ...], str]
"""Shape and dtype of an array."""


@dataclass(slots=True)
class Index:
    """By parts. arrays: by name. matrices: those of several arrays, by name."""

    arrays: dict[str, dict[str, TensorInfo]] = field(default_factory=dict[str, dict[str, TensorInfo]])
    matrices: "dict[str, dict[str, SavedMatrix]]" = field(default_factory=dict[str, "dict[str, SavedMatrix]"])

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """All leaves, named "<part>/<leaf>": a packed matrix has the shape of its values, and its form as dtype."""
        found: dict[str, TensorInfo] = {}
        for part, arrays in self.arrays.items():
            found |= {info.name: info for info in self.whole_leaves(part)}
            for name, matrix in self.matrices.get(part, {}).items():
                nbytes = sum(arrays[array].nbytes for array in matrix.arrays)
                found[f"{part}/{name}"] = TensorInfo(f"{part}/{name}", matrix.shape, matrix.form_name, nbytes)
        return found

    def whole_leaves(self, part: str) -> list[TensorInfo]:
        """The arrays of a part that are leaves themselves."""
        hidden = {name for matrix in self.matrices.get(part, {}).values() for name in matrix.arrays}
        return [info for name, info in self.arrays[part].items() if name not in hidden]


def read_index(root: Path) -> Index:
    """The checked index of a folder. Raises `CheckpointError`."""
    path = root / INDEX
    table = read_object(path, MAX_BYTES)
    parts, forms = table.get("parts"), table.get("forms", {})
    formats = (DENSE, PACKED) if "forms" not in table else (PACKED,)
    if table.get("format") not in formats or not isinstance(parts, dict) or not isinstance(forms, dict):
        raise CheckpointError(f"{path}: is not an index in the format {DENSE} or {PACKED}")
    index = Index()
    for part, arrays in cast(dict[str, Any], parts).items():
        if not _PART_NAME.fullmatch(part) or not isinstance(arrays, dict):
            raise CheckpointError(f"{path}: {part!r} is not a part")
        index.arrays[part] = {
            name: _array(f"{path}: {part}/{name}", part, name, entry)
            for name, entry in cast(dict[str, Any], arrays).items()
        }
    for part, own in cast(dict[str, Any], forms).items():
        if part not in index.arrays or not isinstance(own, dict):
            raise CheckpointError(f"{path}: {part!r} has forms and is not a part")
        index.matrices[part] = _matrices(f"{path}: {part}", index.arrays[part], cast(dict[str, Any], own))
    for info in (info for part in index.arrays for info in index.whole_leaves(part)):
        if info.dtype not in NUMBERS:
            raise CheckpointError(f"{path}: {info.name} is {info.dtype}; without a form it is {' or '.join(NUMBERS)}")
    return index


def is_index(path: Path) -> bool:
    """Whether `path` is an index in a format of this module."""
    return path.is_file() and read_object(path, MAX_BYTES).get("format") in (DENSE, PACKED)


def write_index(
    root: Path, parts: Mapping[str, Mapping[str, Entry]], forms: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Completes a folder: `parts` gives every array of every part, `forms` the keys of packed matrices, if any."""
    table = {
        part: {name: {"shape": list(shape), "dtype": dtype} for name, (shape, dtype) in arrays.items()}
        for part, arrays in parts.items()
    }
    packed = {part: dict(own) for part, own in (forms or {}).items() if own}
    of_forms = {"forms": packed} if packed else {}
    write_json(root / INDEX, {"format": PACKED if packed else DENSE, "parts": table, **of_forms})


def _array(where: str, part: str, name: str, entry: Any) -> TensorInfo:
    shape: list[Any]
    match entry:
        case {"shape": [*shape], "dtype": str(dtype)} if dtype in DTYPES and _LEAF_NAME.fullmatch(name):
            pass
        case _:
            raise CheckpointError(f"{where} must have a shape and a dtype, one of {', '.join(DTYPES)}")
    if len(shape) > 8 or not all(type(size) is int and 0 < size < 2**48 for size in shape):
        raise CheckpointError(f"{where} must have at most 8 axes, each a size from 1 to 2**48")
    return TensorInfo(f"{part}/{name}", tuple(shape), dtype, math.prod(shape) * DTYPES[dtype].itemsize)


def _matrices(where: str, arrays: Mapping[str, TensorInfo], forms: Mapping[str, Any]) -> "dict[str, SavedMatrix]":
    """The packed matrices of a part."""
    from checkpoints.formats.saved_matrix import read_matrix  # imports jax

    found = {name: read_matrix(f"{where}/{name}", name, keys, arrays) for name, keys in forms.items()}
    if taken := sorted(found.keys() & arrays.keys()):
        raise CheckpointError(f"{where}/{taken[0]} is an array, and has a form")
    return found
