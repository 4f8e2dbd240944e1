"""Device: `QTensor`, a packed matrix: 8-bit codes, and a scale for each output (row).

    w[o, i] ≈ codes[o, i] · scales[o]        scales[o] = max |w[o]| / the largest code

Scales of weights that are floats may be larger (`checkpoints/quantized/forms/fp8_scales.py`). Both forms with integers
that are multiplied by are described by Dettmers et al., LLM.int8() (arXiv 2208.07339, section 2.1), the numbers of 8
bits by Micikevicius et al., FP8 formats for deep learning (arXiv 2209.05433).

Inputs that are outliers (LLM.int8(), section 3.2) meet weights that are not coded: columns of each matrix, chosen once.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np

LARGEST = 127  # -128 is left out: the codes of a weight and of its negative are alike
LARGEST_FLOAT = 448  # of float8_e4m3fn


@dataclass(frozen=True, slots=True)
class Scheme:
    """How matrices are coded. has_coded_inputs: products code the activations as well, each token by its own scale, and
    add the products of codes; else they widen the codes to the activations' dtype. codes: the name of their dtype.
    num_outliers: columns of each matrix that are kept as they are."""

    name: str
    has_coded_inputs: bool
    codes: str = "int8"
    num_outliers: int = 0

    @property
    def largest(self) -> int:
        """The largest code."""
        return LARGEST if self.codes == "int8" else LARGEST_FLOAT

    def with_outliers(self, count: int) -> "Scheme":
        """The same with so many columns apart."""
        return replace(self, name=f"{self.name}-o{count}", num_outliers=count) if count else self


SCHEMES = {scheme.name: scheme for scheme in (Scheme("int8", False), Scheme("w8a8", True))}
"""By name; what the option `quantization` of an engine takes."""
FP8 = Scheme("fp8", True, "float8_e4m3fn")
ALL_SCHEMES = SCHEMES | {FP8.name: FP8}
"""With that of devices that multiply FP8 (`jaxserve/engine/build/packing/fp8_products.py`)."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=("codes", "scales", "outliers", "columns"),
    meta_fields=("scheme", "dtype"),
)
@dataclass(frozen=True, slots=True)
class QTensor:
    """Of one matrix, or of a stack of layers.

    codes: of the scheme's dtype [*out, I], [L, *out, I], or L arrays [*out, I]. scales: float32 [*out] or [L, *out].
    dtype: the name of that of decoded values. outliers: of this dtype, [*out, K] or [L, *out, K], the weights of the
    inputs `columns`, int32 [K] or [L, K], in ascending order, whose codes stand for nothing; I: of none. None: a scheme
    without outliers. (In trees of declarations the fields are declarations.)
    """

    codes: Any
    scales: Any
    scheme: Scheme
    dtype: str
    outliers: Any = None
    columns: Any = None


def encode(
    rows: np.ndarray, scheme: Scheme = SCHEMES["int8"], scales: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Codes and scales of float rows [..., I]; rows of zeros have the scale 0. A value that is not finite makes its
    row's scale so: products with it are not finite either. scales: float32 [...]; None: the least."""
    rows = rows.astype(np.float32, copy=False)
    if scales is None:
        scales = np.max(np.abs(rows), axis=-1) / np.float32(scheme.largest)
    with np.errstate(invalid="ignore"):  # inf / inf
        codes = rows / np.where(scales > 0, scales, np.float32(1))[..., None]
        # A scale that is subnormal is not exact, and larger floats would become NaN.
        codes = np.rint(codes) if scheme.codes == "int8" else np.clip(codes, -scheme.largest, scheme.largest)
        return codes.astype(np.dtype(scheme.codes)), scales
