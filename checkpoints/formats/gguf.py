"""Host: `GgufFile`: GGUF files, versions 2 and 3, little-endian.

A header of key-values and tensor declarations is followed by aligned tensor data. Dimensions are stored fastest first
and reversed here. Blocks are decoded by the `gguf` package, the format's reference implementation in numpy. The header
is parsed here, since it is what a hostile file attacks; a vocabulary of 262144 entries takes a fraction of a second,
where that package takes ten.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.formats.gguf_header import HeaderCursor
from checkpoints.formats.tensor_file import MappedFile, TensorInfo, check_extents, check_rows

if TYPE_CHECKING:
    from pallas_kernels.block_forms.block_form import BlockForm

_VERSIONS = (2, 3)
_MAX_DIMS = 4
_DEFAULT_ALIGNMENT = 32
_MIN_PAIR_BYTES = 8 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 4 + 4 + 8

_NATIVE: dict[str, np.dtype] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    **{f"I{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
}


def _stored_types() -> dict[int, tuple[str, int, int]]:
    """Type id → (name, values per block, bytes per block), for every type that can be decoded."""
    from gguf import quants
    from gguf.constants import GGML_QUANT_SIZES

    decoded = {kind for kind in GGML_QUANT_SIZES if hasattr(quants, kind.name) or kind.name in _NATIVE}
    return {int(kind): (kind.name, *GGML_QUANT_SIZES[kind]) for kind in decoded}


class GgufFile:
    """One `.gguf` file (a `TensorFile` and a `PackedFile`)."""

    def __init__(self, path: Path) -> None:
        self._file = MappedFile(path)
        try:
            self._read()
        except CheckpointError:
            self.close()
            raise

    def read_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        info, raw = self.tensors[name], self._raw_rows(name, start, stop)
        if info.dtype in _NATIVE:
            return raw.view(_NATIVE[info.dtype]).reshape(stop - start, info.row_len)
        if start == stop:
            return np.empty((0, info.row_len), np.float32)
        from gguf import quants
        from gguf.constants import GGMLQuantizationType

        # Damaged blocks hold infinite scales; their effect shows in the model's output, so numpy's warnings are off.
        with np.errstate(all="ignore"):
            return quants.dequantize(raw.reshape(stop - start, -1), GGMLQuantizationType[info.dtype])

    def form_of(self, name: str) -> "BlockForm | None":
        from pallas_kernels.block_forms.ggml_forms import GGML_FORMS

        return GGML_FORMS.get(self.tensors[name].dtype)

    def read_fields(self, name: str, start: int, stop: int) -> dict[str, np.ndarray]:
        from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
        from pallas_kernels.block_forms.wide_blocks import wide_fields

        raw, form = self._raw_rows(name, start, stop), GGML_FORMS[self.tensors[name].dtype]
        fields = form.split(raw.reshape(stop - start, -1))
        return fields | wide_fields(form.name, fields)

    def _raw_rows(self, name: str, start: int, stop: int) -> np.ndarray:
        info = self.tensors[name]
        check_rows(info, start, stop)
        row_bytes = info.nbytes // info.num_rows
        first = self._starts[name]
        return self._file.copy_bytes(first + start * row_bytes, first + stop * row_bytes)

    def close(self) -> None:
        self._file.close()

    def _read(self) -> None:
        file, cursor = self._file, HeaderCursor(self._file)
        if file.data[cursor.take(4, "the magic number") : 4] != b"GGUF":
            raise file.fail("is not a GGUF file: it does not begin with 'GGUF'")
        version = cursor.u32("the version")
        if version not in _VERSIONS:
            raise file.fail(f"has GGUF version {version:#x}; only little-endian versions {_VERSIONS} are read")
        num_tensors = cursor.count("tensors", _MIN_TENSOR_BYTES)
        num_pairs = cursor.count("key-values", _MIN_PAIR_BYTES)
        self.metadata: dict[str, Any] = {}
        for _ in range(num_pairs):
            key = cursor.string("a key")
            if key in self.metadata:
                raise file.fail(f"has the key {key!r} twice")
            self.metadata[key] = cursor.value(key, cursor.u32(f"the type of {key!r}"))
        if self.metadata.get("split.count", 1) != 1:
            raise file.fail(
                "is one part of a split model: merge the parts into one file first (llama-gguf-split --merge)"
            )
        self._read_tensors(cursor, num_tensors)

    def _read_tensors(self, cursor: HeaderCursor, num_tensors: int) -> None:
        file, types = self._file, _stored_types()
        alignment = self.metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if type(alignment) is not int or not 1 <= alignment <= 2**20 or alignment & (alignment - 1):
            raise file.fail(f"general.alignment must be a power of two up to 2**20, not {alignment!r}")
        self.tensors: dict[str, TensorInfo] = {}
        offsets: dict[str, int] = {}
        for _ in range(num_tensors):
            info, offset = self._read_declaration(cursor, types)
            if info.name in self.tensors:
                raise file.fail(f"has the tensor {info.name!r} twice")
            if offset % alignment:
                raise file.fail(
                    f"tensor {info.name!r} begins at offset {offset}, which is not a multiple of {alignment}"
                )
            self.tensors[info.name], offsets[info.name] = info, offset
        data_start = -(-cursor.position // alignment) * alignment
        self._starts = {name: data_start + offset for name, offset in offsets.items()}
        check_extents(file, ((s, s + self.tensors[name].nbytes, name) for name, s in self._starts.items()))

    def _read_declaration(self, cursor: HeaderCursor, types: dict[int, tuple[str, int, int]]) -> tuple[TensorInfo, int]:
        file = self._file
        name = cursor.string("a tensor's name")
        num_dims = cursor.u32(f"the number of dimensions of {name!r}")
        if num_dims > _MAX_DIMS:
            raise file.fail(f"tensor {name!r} claims {num_dims} dimensions; at most {_MAX_DIMS} are possible")
        shape = tuple(cursor.u64(f"a dimension of {name!r}") for _ in range(num_dims))[::-1]
        type_id = cursor.u32(f"the type of {name!r}")
        offset = cursor.u64(f"the offset of {name!r}")
        if 0 in shape:
            raise file.fail(f"tensor {name!r} has a dimension of 0")
        if type_id not in types:
            raise file.fail(f"tensor {name!r} has type {type_id}, which cannot be decoded")
        dtype, block_len, block_bytes = types[type_id]
        if block_len > 1 and (not shape or shape[-1] % block_len):
            raise file.fail(
                f"tensor {name!r} of shape {shape} has rows that are not a multiple of {dtype} blocks of {block_len}"
            )
        # Python integers do not overflow; `check_extents` refuses a product beyond the file's size.
        return TensorInfo(name, shape, dtype, math.prod(shape) // block_len * block_bytes), offset
