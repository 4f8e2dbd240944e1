"""Device: `quant_matmul` on TPUs: packed blocks by a Pallas kernel that reads a layer's bytes from the stack in place.

    fields [L, *out, n]  ──▶  [L, P, n, O]  ──▶  kernel  ──▶  sums  ──▶  activation, bias (XLA)

The kernel has outputs in lanes: a group's scales are then those of whole sublanes, and codes lie as a TPU unpacks them.
Arrays that are stored so, by columns (`jaxserve/runner/programs/stored_layouts.py`), are not copied.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.matmul.activations import apply_gate
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.qtensor import QTensor
from pallas_kernels.quant_matmul.mosaic_tpu.block_kernel import multiply_blocks
from pallas_kernels.quant_matmul.mosaic_tpu.code_order import chunk_of
from pallas_kernels.quant_matmul.mosaic_tpu.group_scales import check_scales
from pallas_kernels.quant_matmul.mosaic_tpu.tile_sizes import tile_sizes
from pallas_kernels.quant_matmul.on_each_device import on_each_device


def quant_matmul(
    x: Float[Array, "T I"],
    stack: QTensor | BlockTensor,
    layer: Int[Array, ""],
    spec: MatmulSpec,
    *,
    bias: Float[Array, "*out"] | None,
) -> Float[Array, "T *out"]:
    """See `api.quant_matmul`. Weights are rounded to the type of x, as dense ones are."""
    if spec.block is not None:
        raise NotImplementedError("its blocks follow from the shapes: pass block=None")
    if isinstance(stack, QTensor):
        raise NotImplementedError("it multiplies blocks; XLA widens rows of codes while it reads them")
    if x.dtype not in (jnp.bfloat16, jnp.float32):
        raise NotImplementedError(f"it multiplies bfloat16 or float32, not {x.dtype}")
    return on_each_device(_product, x, stack.of_arrays(), layer, spec, bias)


def _product(
    x: jax.Array, stack: BlockTensor, layer: jax.Array, spec: MatmulSpec, bias: jax.Array | None
) -> Float[Array, "T *out"]:
    fields = stack.fields
    out = next(iter(fields.values())).shape[1:-1]
    check(stack.form, x.shape[1])
    num_rows, dtype = len(x), jnp.dtype(spec.out_dtype or x.dtype)
    sizes = tile_sizes(stack.form, num_rows, out[-1], x.shape[1], x.dtype.itemsize)
    x = jnp.pad(x, ((0, -num_rows % sizes.rows), (0, 0)))
    by_columns = {
        name: jnp.swapaxes(field.reshape(len(field), -1, *field.shape[-2:]), -1, -2) for name, field in fields.items()
    }
    y = multiply_blocks(x, by_columns, layer, stack.form, sizes, dtype)
    y = apply_gate(spec.activation, y[:num_rows].reshape(num_rows, *out))
    return y if bias is None else y + jnp.broadcast_to(bias.astype(dtype), y.shape)


def check(form: BlockForm, num_inputs: int) -> None:
    """Raises NotImplementedError with the reason where the kernel does not multiply such blocks."""
    check_scales(form)
    chunk_of(form, num_inputs)
