"""Device: `on_each_device`: a kernel's product with packed weights that are divided over the devices of the mesh, which
XLA cannot divide: each device multiplies by its own outputs, or with its own inputs.

    outputs    x, whole ──▶ kernel, of own outputs ──▶ own part of y
    inputs     own inputs of x ──▶ kernel ──▶ sums of all outputs in float32 ──added over devices──▶ bias ──▶ y
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int, Num

from pallas_kernels.block_tensor import BlockTensor
from pallas_kernels.dispatch import dividing_axes, num_dividing_devices
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.qtensor import QTensor

type Product[Packed] = Callable[[jax.Array, Packed, jax.Array, MatmulSpec, jax.Array | None], jax.Array]
"""`api.quant_matmul` on one device."""
WHOLE = PartitionSpec()


def on_each_device[Packed: (BlockTensor, QTensor)](
    product: Product[Packed],
    x: Num[Array, "T I"],
    stack: Packed,
    layer: Int[Array, ""],
    spec: MatmulSpec,
    bias: Float[Array, "*out"] | None,
) -> Float[Array, "T *out"]:
    """`product` on each device, of the part of a stack of arrays that `spec.divided_axis` says. x may be codes.

    Raises:
      NotImplementedError: devices would have parts of blocks or of different sizes, or the axis is not known.
    """
    axes, num_devices = dividing_axes(), num_dividing_devices()
    if num_devices == 1:
        return product(x, stack, layer, spec, bias)
    out = stack.scales.shape[1:] if isinstance(stack, QTensor) else next(iter(stack.fields.values())).shape[1:-1]
    _check(stack, out, x.shape[1], spec, num_devices)
    own, dtype = replace(spec, divided_axis=None), jnp.dtype(spec.out_dtype or x.dtype)
    divided = [axes if axis == spec.divided_axis else None for axis in range(len(out))]
    if spec.divided_axis != -1:

        def of_own_outputs(x: jax.Array, stack: Packed, layer: jax.Array, bias: jax.Array | None) -> jax.Array:
            return product(x, stack, layer, own, bias)

        in_specs = (WHOLE, PartitionSpec(None, *divided), WHOLE, PartitionSpec(*divided))
        of_result = PartitionSpec(None, *divided[spec.num_parts - 1 :])
        multiply = jax.shard_map(of_own_outputs, in_specs=in_specs, out_specs=of_result, check_vma=False)
        return multiply(x, stack, layer, bias)

    def summed(x: jax.Array, stack: Packed, layer: jax.Array) -> jax.Array:
        sums = product(x, stack, layer, replace(own, out_dtype=jnp.dtype(jnp.float32)), None)
        return cast(jax.Array, lax.psum(sums, axes))

    own_inputs: Any = PartitionSpec(*[None] * (len(out) + 1), axes)
    if isinstance(stack, QTensor):
        own_inputs = replace(stack, codes=own_inputs, scales=WHOLE)
    in_specs = (PartitionSpec(None, axes), own_inputs, WHOLE)
    multiply = jax.shard_map(summed, in_specs=in_specs, out_specs=WHOLE, check_vma=False)
    y = multiply(x, stack, layer)
    return (y if bias is None else y + bias.astype(jnp.float32)[None]).astype(dtype)


def _check(
    stack: BlockTensor | QTensor, out: tuple[int, ...], num_inputs: int, spec: MatmulSpec, num_devices: int
) -> None:
    axis = spec.divided_axis
    unit, name = (1, stack.scheme.name) if isinstance(stack, QTensor) else (stack.form.block_len, stack.form.name)
    if axis is None:
        raise NotImplementedError(f"divided_axis does not say how {num_devices} devices divide the matrix")
    if axis == -1:
        if spec.activation is not None:
            raise NotImplementedError("it applies a gate before devices' sums are added: divide the outputs")
        if num_inputs % (unit * num_devices):
            raise NotImplementedError(
                f"of {num_inputs} inputs {num_devices} devices have no whole blocks of {unit} ({name})"
            )
    elif axis < spec.num_parts - 1:
        raise NotImplementedError("a gate and its other half must be on the same devices")
    elif out[axis] % num_devices:
        raise NotImplementedError(f"{out[axis]} outputs are no multiple of {num_devices} devices")
