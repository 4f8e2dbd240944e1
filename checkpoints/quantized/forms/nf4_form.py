"""Host: NF4 (Dettmers et al., QLoRA, arXiv 2305.14314), as bitsandbytes writes it, without double quantization."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from checkpoints.quantized.bitsandbytes import STATE
from checkpoints.quantized.forms.gptq_rounding import GptqRounding
from checkpoints.quantized.forms.nf4_grid import VALUES, Nf4Grid, largest
from checkpoints.quantized.forms.written_form import SCALES, WrittenPart, by_pieces, finite
from checkpoints.quantized.group_codes import packed_codes
from checkpoints.quantized.quantized_weight import Misfit

if TYPE_CHECKING:
    from pallas_kernels.block_forms.block_form import BlockForm

BLOCK = 64
_BYTES = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True)
class Nf4Form:
    """Blocks of 64 codes, each with a factor."""

    def config(self) -> dict[str, Any]:
        """See `WrittenForm`."""
        return {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "load_in_8bit": False,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": False,
            "bnb_4bit_compute_dtype": "bfloat16",
            "bnb_4bit_quant_storage": "uint8",
            "llm_int8_skip_modules": ["lm_head"],
        }

    def parts(self, shape: tuple[int, int]) -> list[WrittenPart]:
        """See `WrittenForm`."""
        num_codes = shape[0] * shape[1]
        if shape[1] % BLOCK:
            raise Misfit(f"{shape[1]} inputs are not a multiple of {BLOCK}")
        (state,) = (part for part in self.constants(shape) if part.dtype == _BYTES)
        return [
            WrittenPart(".weight", "U8", (num_codes // 2, 1), _BYTES),
            WrittenPart(".weight.absmax", "F32", (num_codes // BLOCK,), SCALES),
            WrittenPart(".weight.quant_map", "F32", (len(VALUES),), SCALES),
            WrittenPart(f".weight{STATE}nf4", "U8", state.shape, _BYTES),
        ]

    def encode(self, rows: np.ndarray) -> list[np.ndarray]:
        """See `WrittenForm`."""
        return self.stored(*self._codes(finite(rows)))

    def stored(self, codes: np.ndarray, factors: np.ndarray) -> list[np.ndarray]:
        """Codes and factors of blocks, of rows one after the other, as they are written."""
        codes = codes.reshape(-1)
        return [(codes[0::2] << 4 | codes[1::2])[:, None], factors.reshape(-1)]

    def rounded(self, rows: np.ndarray) -> np.ndarray:
        """See `Coding`."""
        codes, factors = self._codes(rows)
        return Nf4Grid().values(codes, (factors[..., None],)).reshape(rows.shape)

    def block_form(self) -> "BlockForm":
        """See `BlockCoding`."""
        from pallas_kernels.block_forms.table_forms import table_form

        form = table_form("NF4", tuple(VALUES.tolist()), BLOCK)
        assert form is not None
        return form

    def fields(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """See `BlockCoding`."""
        codes, factors = self._codes(rows)
        return packed_codes(self.block_form(), codes.reshape(rows.shape)) | {"scales": factors}

    def _codes(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(codes [N, blocks, BLOCK], factors [N, blocks])."""
        groups = rows.reshape(len(rows), -1, BLOCK)
        factors = largest(groups)
        return Nf4Grid().codes(groups, (factors[..., None],)), factors

    def constants(self, shape: tuple[int, int]) -> list[np.ndarray]:
        """See `WrittenForm`."""
        state = {"quant_type": "nf4", "blocksize": BLOCK, "dtype": "bfloat16", "shape": list(shape)}
        return [VALUES, np.frombuffer(json.dumps(state).encode(), np.uint8)]


@dataclass(frozen=True, slots=True)
class CalibratedNf4Form(Nf4Form):
    """A `CalibratedForm`: codes are chosen by GPTQ."""

    def encode_whole(self, values: np.ndarray, sums: np.ndarray) -> list[np.ndarray]:
        """See `CalibratedForm`. sums: of x xᵀ, [in, in]."""
        rounding = GptqRounding(sums, BLOCK, Nf4Grid())
        return by_pieces(lambda rows: self.stored(*rounding.codes(finite(rows))), values)
