"""Device: `table_rows` on a TPU of tables that are stored by columns, because a kernel also multiplies them.

    tables[V, n], stored [n, V] ── tile of each row ──▶ VMEM [2, 8, n, 128] ── a 1 in the row's lane ──▶ its row [8, n]

Columns are in lanes there: a matrix unit takes the one that is wanted out of a tile and lays it along lanes, which is
exact for numbers of 8 bits; those of 16 bits are two such. Of a row the kernel reads 128, so a step of 64 rows reads
8,192 of the 128,256 rows of Llama 3; the copies for the next 8 rows run meanwhile.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Int, Shaped

from pallas_kernels.dispatch import interpretation, require_one_device
from pallas_kernels.kernel_types import Ref, Scalar
from pallas_kernels.table_rows.mosaic_tpu import check_types

TOKENS = 8
"""Rows of one turn: sublanes of float32."""
LANES = 128
BYTE = 256
NUM_TURNS = 2  # in vector memory: one is read while the next is copied
MAX_BYTES = 40 * 2**20
VMEM_BYTES = 48 * 2**20
"""Of a TPU7x's 64 MiB."""


def rows_of_columns(tables: Sequence[jax.Array], index: Int[Array, "T"]) -> tuple[jax.Array, ...]:
    """See `api.table_rows`."""
    require_one_device()
    num_tokens, num_rows = len(index), len(tables[0])
    check_types(tables)
    if num_rows % LANES:
        raise NotImplementedError(f"{num_rows} rows are no whole tiles of {LANES}")
    num_bytes = sum(NUM_TURNS * TOKENS * t.shape[1] * LANES * t.dtype.itemsize for t in tables)
    if num_bytes > MAX_BYTES:
        raise NotImplementedError(f"two turns of {TOKENS} rows have {num_bytes} bytes, more than {MAX_BYTES}")
    num_turns = pl.cdiv(num_tokens, TOKENS)
    index = jnp.pad(index, (0, num_turns * TOKENS - num_tokens))
    widths = [table.shape[1] for table in tables]

    def of_turn(turn: Scalar, index: Ref) -> tuple[Scalar, ...]:
        return turn, 0

    found = pl.pallas_call(
        partial(_kernel, num_turns=num_turns),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(num_turns,),
            in_specs=[pl.BlockSpec(memory_space=pl.ANY)] * len(tables),
            out_specs=[pl.BlockSpec((TOKENS, width), of_turn) for width in widths],
            scratch_shapes=[
                *(pltpu.VMEM((NUM_TURNS, TOKENS, t.shape[1], LANES), t.dtype) for t in tables),
                pltpu.SemaphoreType.DMA((NUM_TURNS,)),
            ],
        ),
        out_shape=[jax.ShapeDtypeStruct((len(index), width), jnp.int32) for width in widths],
        interpret=interpretation(),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",), vmem_limit_bytes=VMEM_BYTES),
        name="column_rows",
    )(index, *(pltpu.with_memory_space_constraint(table.T, pltpu.HBM) for table in tables))
    return tuple(rows[:num_tokens].astype(table.dtype) for rows, table in zip(found, tables, strict=True))


def _kernel(index: Ref, *refs: Ref, num_turns: int) -> None:
    size, semaphores = len(refs) // 3, refs[-1]
    tables, found, tiles = refs[:size], refs[size : 2 * size], refs[2 * size : -1]
    turn = pl.program_id(0)

    def copies(turn: Scalar) -> list[Any]:
        made, place = list[Any](), turn % NUM_TURNS
        for token in range(TOKENS):
            lanes = pl.ds(pl.multiple_of(index[turn * TOKENS + token] // LANES * LANES, LANES), LANES)
            for table, tile in zip(tables, tiles, strict=True):
                made.append(pltpu.make_async_copy(table.at[:, lanes], tile.at[place, token], semaphores.at[place]))
        return made

    @pl.when(turn == 0)
    def _() -> None:
        for copy in copies(turn):
            copy.start()

    @pl.when(turn + 1 < num_turns)
    def _() -> None:
        for copy in copies(turn + 1):
            copy.start()

    for copy in copies(turn):
        copy.wait()
    lanes_of = [index[turn * TOKENS + token] % LANES for token in range(TOKENS)]
    for tile, rows in zip(tiles, found, strict=True):
        rows[...] = sum(_row(tile[turn % NUM_TURNS, token], token, lane) for token, lane in enumerate(lanes_of))


def _row(tile: Shaped[Array, "n lanes"], token: int, lane: Scalar) -> Int[Array, "tokens n"]:
    """A column of a tile as the row of a token; zeros in the others."""
    shape = TOKENS, LANES
    is_own = (lax.broadcasted_iota(jnp.int32, shape, 0) == token) & (lax.broadcasted_iota(jnp.int32, shape, 1) == lane)

    def taken(numbers: Int[Array, "n lanes"]) -> Int[Array, "tokens n"]:
        factor, numbers = is_own.astype(jnp.float32), numbers.astype(jnp.float32)
        contracted = (((1,), (1,)), ((), ()))
        return lax.dot_general(
            factor.astype(jnp.bfloat16), numbers.astype(jnp.bfloat16), contracted, preferred_element_type=jnp.float32
        ).astype(jnp.int32)

    numbers = tile.astype(jnp.int32)
    if tile.dtype.itemsize == 1:
        return taken(numbers)
    return taken(numbers >> 8) * BYTE + taken(numbers & (BYTE - 1))
