"""Device: the layouts in which weights stay on the devices, where the compiler's own would be copied.

XLA for TPU stores a matrix whose rows are no multiple of 128 long by columns, so that no tile is padded. A tied
embedding is read by rows, too: a step would copy all of SmolLM2's, 57 MB, in each dispatch. Packed blocks are read by
columns, by the kernel that multiplies them (`pallas_kernels/quant_matmul/mosaic_tpu`), in an embedding that is not
tied by rows.
"""

from dataclasses import replace
from typing import Any

import jax
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, Sharding

from jaxserve.models.params import Params
from pallas_kernels.block_tensor import BlockTensor

BY_ROWS = Layout(major_to_minor=(0, 1))
LANES = 128  # of a TPU's tile
OF_TOKENS = ("embed", "lm_head")
MULTIPLIED = ("layers", "lm_head")


def stored(params: Params, mesh: Mesh) -> Params:
    """`jax.ShapeDtypeStruct`s of weights with the layout in which they stay on a mesh."""
    if mesh.devices.flat[0].platform != "tpu":
        return params

    def by_rows(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        # Wider ones are by rows anyway, and a layout that is asked for makes `jax.device_put` copy.
        if len(leaf.shape) < 2 or leaf.shape[-1] % LANES == 0:
            return leaf
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=Format(BY_ROWS, leaf.sharding))

    params = params | {name: jax.tree.map(by_rows, params[name]) for name in OF_TOKENS if name in params}
    multiplied = MULTIPLIED if "lm_head" in params else (*MULTIPLIED, "embed")
    return params | {name: _blocks_by_columns(params[name]) for name in multiplied if name in params}


def _blocks_by_columns(tree: Any) -> Any:
    def by_columns(field: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        *lead, rows, columns = range(len(field.shape))
        layout = Layout(major_to_minor=(*lead, columns, rows))
        return jax.ShapeDtypeStruct(field.shape, field.dtype, sharding=Format(layout, field.sharding))

    def of_leaf(leaf: Any) -> Any:
        if not isinstance(leaf, BlockTensor):
            return leaf
        return replace(leaf, fields=jax.tree.map(by_columns, leaf.fields))

    return jax.tree.map(of_leaf, tree, is_leaf=_is_blocks)


def _is_blocks(leaf: Any) -> bool:
    return isinstance(leaf, BlockTensor)


def destination(struct: jax.ShapeDtypeStruct) -> Sharding | Format:
    """Where `jax.device_put` puts a weight. With a `Format` it copies in any case."""
    return struct.sharding if struct.format.layout is None else struct.format


def place(params: Params, structs: Params) -> Params:
    """Weights in the layouts of their structs; one that has another is copied, and its memory freed."""

    def placed(leaf: jax.Array, struct: jax.ShapeDtypeStruct) -> jax.Array:
        return jax.device_put(leaf, destination(struct), donate=struct.format.layout is not None)

    return jax.tree.map(placed, params, structs)
