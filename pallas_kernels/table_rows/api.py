"""Device: `table_rows`, rows of packed tables such as an embedding's: the op's entry point."""

from collections.abc import Sequence
from functools import partial

import jax
from jaxtyping import Array, Int

from pallas_kernels.dispatch import Implementation, dispatch
from pallas_kernels.table_rows import column_tables, mosaic_tpu
from pallas_kernels.table_rows.divided_tables import rows_of_divided


def table_rows(
    tables: Sequence[jax.Array], index: Int[Array, "T"], *, are_multiplied: bool = False, backend: str = "auto"
) -> tuple[jax.Array, ...]:
    """Rows `index` of each table. Kernels assume that all devices of the mesh in scope divide the tables' rows.

    Args:
      tables: [V, n] each, n of its own.
      index: rows; 0 <= index < V.
      are_multiplied: they are a head, too, which TPUs store by columns (`quant_matmul/mosaic_tpu`).
      backend: one of `dispatch.BACKENDS`.

    Raises:
      NotImplementedError: no back end serves them; the message lists each one's reason.
    """
    return dispatch("table_rows", OF_HEADS if are_multiplied else IMPLEMENTATIONS, backend, tables, index)


def gathered(tables: Sequence[jax.Array], index: Int[Array, "T"]) -> tuple[jax.Array, ...]:
    """The same, gathered by XLA."""
    return tuple(table.at[index].get(mode="promise_in_bounds") for table in tables)


IMPLEMENTATIONS = (
    Implementation("mosaic_tpu", partial(rows_of_divided, mosaic_tpu.table_rows), platforms=("tpu",)),
    Implementation("xla", gathered),
)
OF_HEADS = (
    Implementation("mosaic_tpu", partial(rows_of_divided, column_tables.rows_of_columns), platforms=("tpu",)),
    Implementation("xla", gathered),
)
