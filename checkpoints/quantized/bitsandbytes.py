"""Host: weights that bitsandbytes writes, of 4 bits (NF4 and FP4) and of 8.

    4 bits  weight uint8 [out · in / 2, 1]: two codes a byte, the high bits first, in the order of rows; the same bytes
                may be stored as numbers of another type, fewer as each has more bytes (bnb_4bit_quant_storage)
            weight.quant_map f32 [16]: values of the codes
            weight.absmax: a factor for each block of codes, float32, or with double quantization uint8:
                weight.nested_quant_map [256] · weight.nested_absmax, one for each block of these, plus an offset
            weight.quant_state.bitsandbytes__nf4 (or __fp4): JSON with shape, block sizes and the offset

    8 bits  weight int8 [out, in], SCB f32 [out]: w = code · SCB / 127

NF4 and double quantization: Dettmers et al., QLoRA, arXiv 2305.14314, section 3.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.formats.bounded_json import parse_object
from checkpoints.formats.safetensors import DTYPES
from checkpoints.formats.tensor_file import ColumnFile, TensorInfo
from checkpoints.quantized.bit_fields import nibbles
from checkpoints.quantized.group_codes import packed_codes
from checkpoints.quantized.quantized_weight import Misfit, names_of, part, weight_info, whole_tensor

if TYPE_CHECKING:
    from pallas_kernels.block_forms.block_form import BlockForm

CODES = ".weight"
STATE = ".quant_state.bitsandbytes__"
TYPES = ("nf4", "fp4")
STORAGE = {"uint8": "U8", "int8": "I8", "float16": "F16", "bfloat16": "BF16", "float32": "F32"}
"""Types of safetensors for the values of bnb_4bit_quant_storage."""
_MAX_STATE_BYTES = 10_000
_MAX_SIZE = 2**31
_MAX_OFFSET = float(np.finfo(np.float32).max)
_MIN_BLOCK = 32  # the least that bitsandbytes writes; of smaller blocks the factors would be as large as the weights


@dataclass(frozen=True, slots=True)
class BitsAndBytesScheme:
    """bits: 4 or 8. storage: the type as which codes of 4 bits are stored."""

    bits: int
    storage: str = "U8"

    def has_codes(self, info: TensorInfo) -> bool:
        """See `Scheme`."""
        if self.bits == 8:
            return info.name.endswith(CODES) and info.dtype == "I8"
        # Weights that are not coded may have the type of the storage, but not one column.
        is_coded = self.storage == "U8" or info.shape[1:] == (1,)
        return info.name.endswith(CODES) and info.dtype == self.storage and is_coded

    def weight(self, file: ColumnFile, name: str) -> "FourBitWeight | EightBitWeight":
        """See `Scheme`."""
        return _four_bits(file, name) if self.bits == 4 else _eight_bits(file, name)


@dataclass(frozen=True, slots=True)
class EightBitWeight:
    """A `QuantizedWeight`."""

    info: TensorInfo
    tensors: tuple[str, ...]
    codes: TensorInfo
    scales: TensorInfo

    row_scheme = "int8"
    """See `RowCodedWeight`."""

    def row_codes(self, file: ColumnFile, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """See `RowCodedWeight`."""
        scales = whole_tensor(file, self.scales)[start:stop] * np.float32(1 / 127)
        return file.read_rows(self.codes.name, start, stop), scales

    def rows(self, file: ColumnFile, start: int, stop: int) -> np.ndarray:
        """See `QuantizedWeight`."""
        codes, scales = self.row_codes(file, start, stop)
        return codes.astype(np.float32) * scales[:, None]


@dataclass(frozen=True, slots=True)
class FourBitWeight:
    """A `QuantizedWeight`. nested: what double quantization has of the factors: their values, and factors of these."""

    info: TensorInfo
    tensors: tuple[str, ...]
    codes: TensorInfo
    values: TensorInfo
    factors: TensorInfo
    nested: tuple[TensorInfo, TensorInfo] | None
    state: "QuantState"

    def rows(self, file: ColumnFile, start: int, stop: int) -> np.ndarray:
        """See `QuantizedWeight`."""
        num_in, block = self.info.shape[1], self.state.block_len
        first, last = start * num_in, stop * num_in
        of_blocks = self._factors(file, first // block, -(-last // block))
        factors = of_blocks[np.arange(first, last) // block - first // block]
        codes = self._codes(file, start, stop)
        return whole_tensor(file, self.values)[codes] * factors.reshape(codes.shape)

    def form(self, file: ColumnFile) -> "BlockForm | None":
        """See `PackedWeight`; None where a block has values of several rows."""
        from pallas_kernels.block_forms.table_forms import row_form, table_form

        num_in, block = self.info.shape[1], self.state.block_len
        values = _table(file, self.values)
        if num_in % block or not np.isfinite(values).all():
            return None
        plain = table_form(self.info.dtype, values, block)
        if plain is None or self.nested is None:
            return plain
        return row_form(plain, _table(file, self.nested[0]), self.state.nested_len, num_in)

    def fields(self, file: ColumnFile, form: "BlockForm", start: int, stop: int) -> dict[str, np.ndarray]:
        """See `PackedWeight`. The scales of double quantization are also given as numbers."""
        fields = packed_codes(form, self._codes(file, start, stop))
        num_groups = self.info.shape[1] // self.state.block_len
        first, last = start * num_groups, stop * num_groups
        fields["scales"] = self._factors(file, first, last)
        if self.nested is not None:
            fields["scale_codes"] = file.read_columns(self.factors.name, first, last).reshape(-1)
            fields |= self._outer_scales(whole_tensor(file, self.nested[1]), form, np.arange(first, last, num_groups))
            fields["scale_offsets"] = np.full(stop - start, self.state.offset)
        return {name: values.reshape(stop - start, -1) for name, values in fields.items()}

    def _outer_scales(self, outer: np.ndarray, form: "BlockForm", first: np.ndarray) -> dict[str, np.ndarray]:
        """Of rows whose first factors have these numbers."""
        counts = {field.name: field.count for field in form.fields}
        runs, starts = np.divmod(first, self.state.nested_len)
        numbers = np.arange(counts["outer_scales"])
        if "run_starts" not in counts:
            in_common = counts["scale_codes"] // len(numbers)
            return {"outer_scales": outer[(first[:, None] + in_common * numbers) // self.state.nested_len]}
        # A row may have fewer runs than most, and the last one of all need no more.
        found = outer[np.minimum(runs[:, None] + numbers, len(outer) - 1)]
        return {"outer_scales": found, "run_starts": starts.astype(np.int32)}

    def _codes(self, file: ColumnFile, start: int, stop: int) -> np.ndarray:
        """Of rows, [stop - start, in]."""
        num_in = self.info.shape[1]
        first, last = start * num_in, stop * num_in
        per_row = 2 * DTYPES[self.codes.dtype].itemsize
        stored = file.read_rows(self.codes.name, first // per_row, -(-last // per_row))
        codes = nibbles(stored.view(np.uint8).reshape(-1), is_high_first=True)
        return codes[first % per_row :][: last - first].reshape(stop - start, num_in)

    def _factors(self, file: ColumnFile, start: int, stop: int) -> np.ndarray:
        """Of blocks `[start, stop)`."""
        found = file.read_columns(self.factors.name, start, stop).reshape(-1)
        if self.nested is None:
            return found
        values, factors = (whole_tensor(file, info) for info in self.nested)
        return values[found] * factors[np.arange(start, stop) // self.state.nested_len] + self.state.offset


@dataclass(frozen=True, slots=True)
class QuantState:
    """What the JSON says of a weight of 4 bits. nested_len: factors of a block; 0: they are not quantized."""

    shape: tuple[int, int]
    block_len: int
    nested_len: int
    offset: np.float32

    @classmethod
    def read(cls, file: ColumnFile, info: TensorInfo) -> "QuantState":
        """Raises `Misfit`."""
        if info.dtype != "U8" or info.nbytes > _MAX_STATE_BYTES:
            raise Misfit(f"{info.name} must be JSON of at most {_MAX_STATE_BYTES} bytes")
        try:
            state = parse_object(whole_tensor(file, info).tobytes(), info.name)
        except CheckpointError as error:
            raise Misfit(str(error)) from error
        match state:
            case {"shape": [int(rows), int(columns)], "blocksize": int(block)} if _are_sizes(rows, columns, block):
                pass
            case _:
                raise Misfit(f"{info.name} must have a shape of two sizes and a blocksize")
        if block < _MIN_BLOCK:
            raise Misfit(f"{info.name} has the blocksize {block}; it must be at least {_MIN_BLOCK}")
        nested: Any = state.get("nested_blocksize", 0)
        offset: Any = state.get("nested_offset", 0.0)
        is_offset = isinstance(offset, int | float) and abs(offset) <= _MAX_OFFSET  # NaN is not
        if type(nested) is not int or not 0 <= nested < _MAX_SIZE or not is_offset:
            raise Misfit(f"{info.name} has the nested_blocksize {nested!r} and the nested_offset {offset!r}")
        return cls((rows, columns), block, nested, np.float32(offset))


def _eight_bits(file: ColumnFile, name: str) -> EightBitWeight:
    codes, module = file.tensors[name], name.removesuffix(CODES)
    if len(codes.shape) != 2:
        raise Misfit(f"{name} has the shape {list(codes.shape)}; it must have two axes")
    scales = part(file.tensors, f"{module}.SCB", ["F32"], [(codes.shape[0],)], name)
    parts = codes, scales, file.tensors.get(f"{module}.weight_format")
    return EightBitWeight(weight_info(name, codes.shape, "BNB-INT8", parts), names_of(*parts), codes, scales)


def _four_bits(file: ColumnFile, name: str) -> FourBitWeight:
    codes = file.tensors[name]
    kind = next((kind for kind in TYPES if f"{name}{STATE}{kind}" in file.tensors), None)
    if kind is None:
        raise Misfit(f"{name} has no {name}{STATE}nf4")
    declared = file.tensors[f"{name}{STATE}{kind}"]
    state = QuantState.read(file, declared)
    count = state.shape[0] * state.shape[1]
    if codes.shape != (-(-count // (2 * DTYPES[codes.dtype].itemsize)), 1):
        raise Misfit(f"{name} has the shape {list(codes.shape)}, which are not {count} codes in a column")
    values = part(file.tensors, f"{name}.quant_map", ["F32"], [(16,)], name)
    num_blocks, nested = -(-count // state.block_len), None
    dtype = "U8" if state.nested_len else "F32"
    factors = part(file.tensors, f"{name}.absmax", [dtype], [(num_blocks,)], name)
    if state.nested_len:
        nested = (
            part(file.tensors, f"{name}.nested_quant_map", ["F32"], [(256,)], name),
            part(file.tensors, f"{name}.nested_absmax", ["F32"], [(-(-num_blocks // state.nested_len),)], name),
        )
    parts = codes, declared, values, factors, *(nested or ())
    info = weight_info(name, state.shape, kind.upper(), parts)
    return FourBitWeight(info, names_of(*parts), codes, values, factors, nested, state)


def _table(file: ColumnFile, info: TensorInfo) -> tuple[float, ...]:
    return tuple(whole_tensor(file, info).tolist())


def _are_sizes(*sizes: int) -> bool:
    return all(0 < size < _MAX_SIZE for size in sizes)
