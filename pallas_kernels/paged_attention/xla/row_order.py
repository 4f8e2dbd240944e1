"""Device: `RowOrder`: the order in which the XLA path handles rows: the longest first.

A block of rows takes as long as its longest row. In this order the rows of a block have about the same length:

    lengths, in blocks of 2    9 1 | 8 2    two blocks of 9 and 8    sorted    9 8 | 2 1    of 9 and 2
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int


class RowOrder(NamedTuple):
    """rows: all rows of a batch, longest first, those that are not handled last. places: where each row stands."""

    rows: Int[Array, "S"]
    places: Int[Array, "S"]


def row_order(kv_lens: Int[Array, "S"], num_rows: Int[Array, ""]) -> RowOrder:
    """The order of rows [0, num_rows)."""
    is_handled = jnp.arange(len(kv_lens)) < num_rows
    rows = jnp.argsort(jnp.where(is_handled, -kv_lens, 1), stable=True).astype(jnp.int32)
    return RowOrder(rows, jnp.argsort(rows).astype(jnp.int32))
