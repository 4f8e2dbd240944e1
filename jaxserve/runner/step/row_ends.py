"""Device: where rows end: with a stop token, from the first position at which it may be drawn."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from jaxserve.core.row_layout import ROW_INDEX, STOP_FIELDS


def is_stop(
    rows: Int32[Array, "S F"], tokens: Int32[Array, "S *nodes"], positions: Int32[Array, "S *nodes"]
) -> Bool[Array, "S *nodes"]:
    """Whether a token at this position ends its row."""
    nodes = (1,) * (tokens.ndim - 1)

    def column(name: str) -> Int32[Array, "S *ones"]:
        return rows[:, ROW_INDEX[name]].reshape(-1, *nodes)

    is_stop_token = jnp.stack([tokens == column(name) for name in STOP_FIELDS]).any(axis=0)
    return is_stop_token & (positions >= column("min_len"))


def has_ended_before(
    rows: Int32[Array, "S F"], tokens: Int32[Array, "S"], starts: Int32[Array, "S"]
) -> Bool[Array, "S"]:
    """Rows that drew a stop token in the step in flight at planning time: the host did not know it yet."""
    return (rows[:, ROW_INDEX["start"]] < 0) & is_stop(rows, tokens, starts)
