"""Device: the largest error of a product with packed weights of one kind by one back end, and its bound."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.block_forms.half_bits import with_half_bits
from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.qtensor import ALL_SCHEMES, QTensor, encode
from pallas_kernels.quant_matmul.api import quant_matmul
from tests.pallas_kernels.host_callbacks import host_callbacks
from tests.pallas_kernels.matmul.matmul_checks import BOUNDS, errors
from tests.pallas_kernels.quant_matmul.block_stacks import FORMS, block_stack
from tests.pallas_kernels.quant_matmul.mosaic_tpu.tpu_forms import FORMS as TPU_FORMS

ALL_FORMS = FORMS | TPU_FORMS
NUM_ROWS, NUM_OUTPUTS, NUM_LAYERS = 5, 64, 2
DTYPE = "bfloat16"
BOUND = 2 * BOUNDS[DTYPE]
"""Weights are rounded, too, as dense ones are."""


class Measured(NamedTuple):
    """error: the largest of a row, as a share of its largest element; None: the back end does not serve the product,
    for the `reason`."""

    error: float | None
    reason: str = ""


def kinds() -> list[str]:
    """Rows of codes, then blocks."""
    return [*ALL_SCHEMES, *ALL_FORMS]


def block_len(kind: str) -> int:
    """Of which rows are multiples."""
    return ALL_FORMS[kind].block_len if kind in ALL_FORMS else 1


def measured(kind: str, num_inputs: int, backend: str) -> Measured:
    """Of the last layer; other layers have scales that are not numbers."""
    stack = _stack(kind, num_inputs, backend)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(NUM_ROWS, num_inputs)), DTYPE)
    layer = jnp.int32(NUM_LAYERS - 1)
    multiply = jax.jit(partial(quant_matmul, spec=MatmulSpec(backend=backend)))
    try:
        with host_callbacks():
            y = np.asarray(multiply(x, stack, layer), np.float32)
    except NotImplementedError as error:
        return Measured(None, str(error).partition(f"{backend}: ")[2].split("\n")[0])
    with jax.enable_x64(True):
        spec = MatmulSpec(backend="reference", out_dtype=jnp.dtype(jnp.float64))
        truth = np.asarray(quant_matmul(jnp.asarray(x, jnp.float64), stack, layer, spec))
    return Measured(float(errors(y, truth).max()))


def _stack(kind: str, num_inputs: int, backend: str) -> QTensor | BlockTensor:
    """With numbers in the last layer alone. On TPUs fields of float16 are kept as bits."""
    if kind in ALL_SCHEMES:
        weights = np.random.default_rng(0).normal(size=(NUM_LAYERS, NUM_OUTPUTS, num_inputs))
        codes, scales = encode(weights.astype(np.float32), ALL_SCHEMES[kind])
        scales[:-1] = np.nan
        return QTensor(jnp.asarray(codes), jnp.asarray(scales), ALL_SCHEMES[kind], DTYPE)
    stack = block_stack(ALL_FORMS[kind], NUM_LAYERS, (NUM_OUTPUTS,), num_inputs)
    if backend != "mosaic_tpu":
        return stack
    form = with_half_bits(stack.form)
    fields = {
        field.name: jnp.asarray(np.asarray(stack.fields[field.name]).view(jnp.dtype(field.dtype)))
        for field in form.fields
    }
    return replace(stack, fields=fields, form=form)
