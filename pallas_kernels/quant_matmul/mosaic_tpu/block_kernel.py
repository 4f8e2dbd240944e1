"""Device: the TPU kernel of products with packed blocks: a tile of outputs is decoded and multiplied, a chunk of inputs
at a time, while the next tile is copied.

    rows of x                                ──matrix unit──▶ their inputs in the order of codes, for all tiles
    fields of the layer, of a tile of outputs ──DMA──▶ vector memory
    scales of its groups                     ──▶ scratch
    each chunk of inputs: codes · scales     ──▶ weights in registers ──matrix unit──▶ sums
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float, Int, Shaped

from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.dispatch import interpretation, target_device_kind
from pallas_kernels.kernel_types import Ref, Refs, Scalar
from pallas_kernels.page_layouts import NUM_LANES
from pallas_kernels.quant_matmul.last_step import in_steps
from pallas_kernels.quant_matmul.mosaic_tpu import group_scales
from pallas_kernels.quant_matmul.mosaic_tpu.code_order import Chunk, Run, chunk_of, codes_of_byte, order_matrix
from pallas_kernels.quant_matmul.mosaic_tpu.codes import codes, zero_of
from pallas_kernels.quant_matmul.mosaic_tpu.tile_sizes import TileSizes

VMEM_BYTES = 48 * 2**20
"""Of a TPU7x's 64 MiB."""
SUBLANES = 8
UNROLL = 2
"""Chunks in one pass of the loop: the products of one overlap with the decoding of the other."""
ONLY_FLOAT32 = ("TPU v5", "TPU v4")
"""Devices whose vector units compute in float32 alone."""


def multiply_blocks(
    x: Float[Array, "T I"],
    fields: dict[str, Shaped[Array, "L P n O"]],
    layer: Int[Array, ""],
    form: BlockForm,
    sizes: TileSizes,
    out_dtype: Any,
) -> Float[Array, "T P O"]:
    """x · wᵀ. x: its rows are whole tiles."""
    chunk = chunk_of(form, x.shape[1])
    num_groups, x = x.shape[1] // form.group_len, in_steps(x, chunk.inputs)
    num_rows, num_inputs = x.shape
    *_, num_parts, _, num_outputs = next(iter(fields.values())).shape
    num_tiles = num_rows // sizes.rows

    def of_rows(t: Scalar, p: Scalar, o: Scalar, layer_ref: Ref) -> tuple[Scalar, ...]:
        return t, 0

    def of_layer(t: Scalar, p: Scalar, o: Scalar, layer_ref: Ref) -> tuple[Scalar, ...]:
        return layer_ref[0], p, 0, o

    def of_outputs(t: Scalar, p: Scalar, o: Scalar, layer_ref: Ref) -> tuple[Scalar, ...]:
        return p, t, o

    scratch: dict[str, Any] = {"sums": pltpu.VMEM((sizes.rows, sizes.outputs), jnp.float32)}
    scratch |= group_scales.scratch(form, num_groups, sizes.outputs)
    if codes_of_byte(form) > 1:
        scratch["ordered"] = pltpu.VMEM((sizes.rows, num_inputs), x.dtype)
    y = pl.pallas_call(
        partial(
            _kernel,
            names=(tuple(fields), tuple(scratch)),
            form=form,
            chunk=chunk,
            decoding=jnp.dtype(jnp.float32 if target_device_kind().startswith(ONLY_FLOAT32) else jnp.bfloat16),
        ),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(num_tiles, num_parts, pl.cdiv(num_outputs, sizes.outputs)),
            in_specs=[
                pl.BlockSpec((sizes.rows, num_inputs), of_rows),
                *(pl.BlockSpec((1, 1, field.shape[2], sizes.outputs), of_layer) for field in fields.values()),
            ],
            out_specs=pl.BlockSpec((1, sizes.rows, sizes.outputs), of_outputs),
            scratch_shapes=list(scratch.values()),
        ),
        out_shape=jax.ShapeDtypeStruct((num_parts, num_rows, num_outputs), out_dtype),
        interpret=interpretation(),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary",) * 3, disable_bounds_checks=True, vmem_limit_bytes=VMEM_BYTES
        ),
        # How often it reads the layer, which `jaxserve plan` counts.
        name="multiply_blocks" if num_tiles == 1 else f"multiply_blocks_{num_tiles}_times",
    )(layer[None], x, *(pltpu.with_memory_space_constraint(field, pltpu.HBM) for field in fields.values()))
    return jnp.moveaxis(y, 0, 1)


def _kernel(
    layer_ref: Ref,
    x_ref: Ref,
    *refs: Ref,
    names: tuple[tuple[str, ...], tuple[str, ...]],
    form: BlockForm,
    chunk: Chunk,
    decoding: jnp.dtype,
) -> None:
    """names: of the fields and of the scratch. decoding: the type in which codes, integers below 256, are computed."""
    num_fields = len(names[0])
    fields: Refs = dict(zip(names[0], refs, strict=False))
    y_ref, *scratch = refs[num_fields:]
    memory: Refs = dict(zip(names[1], scratch, strict=True))
    inputs_ref = memory.get("ordered", x_ref)
    precision = lax.Precision.HIGHEST if x_ref.dtype == jnp.float32 else None

    def multiply(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.dot_general(a, b, (((1,), (0,)), ((), ())), precision, preferred_element_type=jnp.float32)

    @pl.when((pl.program_id(1) == 0) & (pl.program_id(2) == 0))
    def _() -> None:
        if (matrix := order_matrix(form, x_ref.dtype)) is not None:
            for start in range(0, x_ref.shape[1], NUM_LANES):
                lanes = slice(start, start + NUM_LANES)
                inputs_ref[:, lanes] = multiply(x_ref[:, lanes], matrix).astype(x_ref.dtype)

    def weights(number: Scalar) -> Float[Array, "K O"]:
        found = codes(form, fields, chunk, number, decoding)
        if "offsets" not in memory and zero_of(form) != form.zero:
            found = found + jnp.asarray(zero_of(form) - form.zero, decoding)
        found = found.astype(jnp.float32)
        group = chunk.first_group(number, form.group_len)
        scaled = [_scaled(found[run.start : run.stop], memory, group, run) for run in chunk.runs]
        return jnp.concatenate(scaled).astype(x_ref.dtype)

    def add(number: Scalar, carry: None) -> None:
        inputs = pl.ds(pl.multiple_of(number * chunk.inputs, chunk.inputs), chunk.inputs)
        memory["sums"][...] += multiply(inputs_ref[:, inputs], weights(number))

    group_scales.compute(form, fields, memory, zero_of(form))
    memory["sums"][...] = jnp.zeros_like(memory["sums"])
    lax.fori_loop(0, x_ref.shape[1] // chunk.inputs, add, None, unroll=UNROLL)
    y_ref[0] = memory["sums"][...].astype(y_ref.dtype)


def _scaled(found: Float[Array, "K O"], memory: Refs, group: Scalar, run: Run) -> Float[Array, "K O"]:
    """The codes of a run as weights."""
    tiles = found.reshape(-1, SUBLANES, found.shape[-1])
    tiles = tiles * _of_run(memory["scales"], group, run)[None]
    if "offsets" in memory:
        tiles = tiles + _of_run(memory["offsets"], group, run)[None]
    return tiles.reshape(found.shape)


def _of_run(ref: Ref, group: Scalar, run: Run) -> Float[Array, "8 O"]:
    """Numbers of the groups of a run, for each sublane: if the codes of a byte are in two groups, they take turns."""
    found = [_row(ref, group + number) for number in run.groups]
    if len(set(run.groups)) == 1:
        return found[0]
    is_second = lax.broadcasted_iota(jnp.int32, found[0].shape, 0) % 2 == 1
    return jnp.where(is_second, found[1], found[0])


def _row(ref: Ref, group: Scalar) -> Float[Array, "8 O"]:
    """One group's numbers in all sublanes."""
    columns = [ref[pl.ds(i, 1), pl.ds(group, 1), :].reshape(1, NUM_LANES) for i in range(ref.shape[0])]
    return jnp.concatenate([jnp.broadcast_to(row, (SUBLANES, NUM_LANES)) for row in columns], axis=1)
