"""Codes and scales of qwix stand for the same weights here, and products with them are its own
(`scripts/goldens/qwix_products.py`)."""

from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from checkpoints.quantized.forms.nf4_form import Nf4Form
from checkpoints.quantized.group_codes import packed_codes
from pallas_kernels.block_forms.int_forms import int_form
from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.qtensor import SCHEMES, QTensor, Scheme
from pallas_kernels.quant_matmul.api import quant_matmul
from tests.pallas_kernels.matmul.matmul_checks import BOUNDS, errors

GOLDENS = dict(np.load(Path(__file__).parents[2] / "goldens" / "qwix.npz"))
FP8_WEIGHTS = Scheme("fp8 weights", False, "float8_e4m3fn")
INT4 = int_form(4, 64, "float32", False)
FORMS = {"int4": (INT4, 8), "nf4": (Nf4Form().block_form(), 0)}
"""And what is added to qwix's codes."""


def stack_of(kind):
    codes, scales = GOLDENS[f"{kind} codes"], GOLDENS[f"{kind} scales"]
    if kind not in FORMS:
        codes = codes.view(ml_dtypes.float8_e4m3fn) if kind == "fp8" else codes
        scheme = SCHEMES["int8"] if kind == "int8" else FP8_WEIGHTS
        return QTensor(jnp.asarray(codes[None]), jnp.asarray(scales[None, :, 0]), scheme, "float32")
    form, zero = FORMS[kind]
    fields = packed_codes(form, (codes + zero).astype(np.uint8)) | {"scales": scales}
    return BlockTensor({field.name: jnp.asarray(fields[field.name][None]) for field in form.fields}, form, "float32")


def product(x, kind, backend):
    return np.asarray(quant_matmul(jnp.asarray(x), stack_of(kind), jnp.int32(0), MatmulSpec(backend=backend)))


@pytest.mark.parametrize("kind", ["int8", "int4", "nf4", "fp8"])
def test_codes_stand_for_the_same_weights(kind):
    with jax.disable_jit():
        found = product(np.eye(256, dtype=np.float32), kind, "reference").T
    np.testing.assert_array_equal(found, GOLDENS[f"{kind} decoded"])


@pytest.mark.parametrize(
    ("kind", "backend"),
    [*((kind, "xla") for kind in ("int8", "int4", "nf4")), *((kind, "mosaic_tpu") for kind in FORMS)],
)
def test_products_are_those_of_qwix(kind, backend):
    found = product(GOLDENS["x"], kind, backend)
    assert errors(found, GOLDENS[f"{kind} products"]).max() <= BOUNDS["float32"]
    shifted = product(np.roll(GOLDENS["x"], 1, axis=1), kind, backend)  # control
    assert errors(shifted, GOLDENS[f"{kind} products"]).max() > 0.1
