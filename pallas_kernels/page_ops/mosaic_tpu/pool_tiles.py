"""Device: the pool's rows in a TPU's tiles, and access to single rows in them.

A TPU moves and addresses aligned tiles: 8 sublanes of 32 bits by 128 lanes, so 8 rows of float32, 16 of bfloat16, 32 of
an 8-bit type. Only 32-bit data in arrays 128 lanes wide can be read or written at any row; so rows travel as int32, a
column of 128 lanes each, which also keeps every bit of every dtype, and needs no conversion that a chip may lack
(float8 on v5e).
"""

from typing import Any

import jax.numpy as jnp
from jax import lax

from pallas_kernels.page_layouts import NUM_LANES, tile_rows

DTYPES = ("float32", "bfloat16", "int8", "float8_e4m3fn", "float8_e5m2")


def require_tiles(pool: Any) -> None:
    """Raises NotImplementedError unless pages consist of whole tiles."""
    page_size, num_lanes = pool.shape[3:]
    if pool.dtype.name not in DTYPES:
        raise NotImplementedError(f"pool has dtype {pool.dtype}; the kernels serve {', '.join(DTYPES)}")
    if page_size % tile_rows(pool.dtype):
        raise NotImplementedError(
            f"page size {page_size} is not a multiple of {tile_rows(pool.dtype)}, the rows of a tile of {pool.dtype}"
        )
    if num_lanes % NUM_LANES:
        raise NotImplementedError(f"pool has {num_lanes} lanes; tiles have {NUM_LANES}")


def to_columns(rows: Any) -> list[Any]:
    """[..., rows, W2] as W2 / 128 columns [..., rows, 128] of int32 (float32 stays what it is)."""
    if rows.dtype.itemsize < 4:
        rows = lax.bitcast_convert_type(rows, _integer(rows.dtype)).astype(jnp.int32)
    return [rows[..., at : at + NUM_LANES] for at in range(0, rows.shape[-1], NUM_LANES)]


def from_columns(columns: list[Any], dtype: Any) -> Any:
    """The inverse of `to_columns`."""
    rows = jnp.concatenate(columns, axis=-1)
    return rows if rows.dtype == dtype else lax.bitcast_convert_type(rows.astype(_integer(dtype)), dtype)


def column_dtype(dtype: Any) -> Any:
    """Dtype of the columns of rows of this dtype."""
    return dtype if jnp.dtype(dtype).itemsize == 4 else jnp.int32


def _integer(dtype: Any) -> Any:
    return jnp.int16 if jnp.dtype(dtype).itemsize == 2 else jnp.int8
