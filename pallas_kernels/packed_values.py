"""Device: the values of a packed matrix of no stack, in float32."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from pallas_kernels.block_tensor import BlockTensor, RowParts
from pallas_kernels.qtensor import QTensor


def packed_values(matrix: QTensor | BlockTensor | RowParts) -> Float[Array, "*out I"]:
    """Inputs are in order; those of outliers have the weights that are kept apart."""
    if isinstance(matrix, RowParts):
        return jnp.concatenate([packed_values(part) for part in matrix.parts], axis=-2)
    if isinstance(matrix, BlockTensor):
        fields = {name: jnp.asarray(values) for name, values in matrix.fields.items()}
        values = matrix.form.decode(fields, jnp.float32)
        return values if matrix.order is None else values[..., jnp.argsort(jnp.asarray(matrix.order))]
    values = jnp.asarray(matrix.codes).astype(jnp.float32) * jnp.asarray(matrix.scales)[..., None]
    if matrix.columns is None:
        return values
    outliers: jax.Array = jnp.asarray(matrix.outliers).astype(jnp.float32)
    return values.at[..., jnp.asarray(matrix.columns)].set(outliers, mode="drop")
