"""Device: `table_rows` on a TPU by a Pallas kernel, for the few rows of a decode step.

XLA copies a table that fits into vector memory there before it takes rows of it: for 64 rows of Llama 3 8B's embedding
in Q5_K twice 66 MB (libtpu 0.0.48). The kernel copies the tiles in which the rows lie, 32 rows each, all at once:

    tables[V, n] ── tile of each row ──▶ VMEM [T, 32, n] ──▶ its row, as int32 [T, n]
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Int

from pallas_kernels.dispatch import interpretation, require_one_device
from pallas_kernels.kernel_types import Ref, Scalar

TILE = 32
"""Rows of a tile of 8 bits; two tiles of 16 bits."""
LANES = 128
MAX_TOKENS = 64
MAX_BYTES = 12 * 2**20
"""Of tiles in vector memory; a kernel has 16 MiB by default."""


def table_rows(tables: Sequence[jax.Array], index: Int[Array, "T"]) -> tuple[jax.Array, ...]:
    """See `api.table_rows`."""
    require_one_device()
    num_tokens, num_rows = len(index), len(tables[0])
    check_types(tables)
    if num_rows % TILE:
        raise NotImplementedError(f"{num_rows} rows are no whole tiles of {TILE}")
    num_bytes = sum(num_tokens * TILE * -(-t.shape[1] // LANES) * LANES * t.dtype.itemsize for t in tables)
    if num_tokens > MAX_TOKENS:
        raise NotImplementedError(f"it takes at most {MAX_TOKENS} rows, not {num_tokens}")
    if num_bytes > MAX_BYTES:
        raise NotImplementedError(f"the tiles of {num_tokens} rows have {num_bytes} bytes, more than {MAX_BYTES}")
    found = pl.pallas_call(
        _kernel,
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), *[pl.BlockSpec(memory_space=pl.ANY)] * len(tables)],
        out_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)] * len(tables),
        out_shape=[jax.ShapeDtypeStruct((num_tokens, t.shape[1]), jnp.int32) for t in tables],
        scratch_shapes=[
            *(pltpu.VMEM((num_tokens, TILE, t.shape[1]), t.dtype) for t in tables),
            pltpu.SemaphoreType.DMA,
        ],
        interpret=interpretation(),
        name="table_rows",
    )(index, *(pltpu.with_memory_space_constraint(table, pltpu.HBM) for table in tables))
    return tuple(rows.astype(table.dtype) for rows, table in zip(found, tables, strict=True))


def check_types(tables: Sequence[jax.Array]) -> None:
    """Raises NotImplementedError for tables of which no kernel takes rows."""
    for table in tables:
        if not jnp.issubdtype(table.dtype, jnp.integer) or table.dtype.itemsize > 2:
            raise NotImplementedError(f"it takes rows of integers of 8 and 16 bits, not of {table.dtype}")


def _kernel(index: Ref, *refs: Ref) -> None:
    size, semaphore = len(refs) // 3, refs[-1]
    tables, found, tiles = refs[:size], refs[size : 2 * size], refs[2 * size : -1]
    num_tokens = len(found[0])

    def copies(token: Scalar) -> list[Any]:
        rows = pl.ds(pl.multiple_of(index[token] // TILE * TILE, TILE), TILE)
        pairs = zip(tables, tiles, strict=True)
        return [pltpu.make_async_copy(table.at[rows], tile.at[token], semaphore) for table, tile in pairs]

    def start(token: Scalar, carry: None) -> None:
        for copy in copies(token):
            copy.start()

    def wait(token: Scalar, carry: None) -> None:
        for copy in copies(token):
            copy.wait()

    def select(token: Scalar, carry: None) -> None:
        for tile, rows in zip(tiles, found, strict=True):
            numbers = tile[token].astype(jnp.int32)
            is_row = lax.broadcasted_iota(jnp.int32, numbers.shape, 0) == index[token] % TILE
            rows[pl.ds(token, 1)] = jnp.sum(jnp.where(is_row, numbers, 0), axis=0, keepdims=True)

    for step in (start, wait, select):
        lax.fori_loop(0, num_tokens, step, None)
