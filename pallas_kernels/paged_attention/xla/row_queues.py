"""Device: `RowQueues`: the order in which the XLA path computes rows of one query token: several at a time, in queues.

The longest rows come first, and queues take them in turns, forth and back, so that all end at about the same time. When
a queue has computed all groups of pages of a row, it goes on with its next. Rows of 9, 8, 2 and 1 groups in two queues:

    in blocks of two rows    A A A A A A A A A C C    in queues    A A A A A A A A A D
                             B B B B B B B B · D ·                 B B B B B B B B C C
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int


class RowQueues(NamedTuple):
    """order: of each queue the places of its rows among the ordered ones, one after the other. starts: in which step it
    begins each. ends: after which step it has computed each."""

    order: Int[np.ndarray, "R Q"]
    starts: Int[Array, "R Q"]
    ends: Int[Array, "R Q"]

    @property
    def num_steps(self) -> Int[Array, ""]:
        """Until the last queue has ended."""
        return jnp.max(self.ends)

    def turns(self, step: Int[Array, ""]) -> Int[Array, "Q"]:
        """Which of its rows each queue computes; the last after its end."""
        return jnp.minimum(jnp.sum(self.ends <= step, axis=0, dtype=jnp.int32), len(self.order) - 1)


def queues_of(num_groups: Int[Array, "S"], num_queues: int) -> RowQueues:
    """Those of ordered rows of so many groups of pages."""
    order = queue_order(len(num_groups), num_queues)
    counts = jnp.where(order < len(num_groups), num_groups.at[order].get(mode="fill", fill_value=0), 0)
    ends = jnp.cumsum(counts, axis=0, dtype=jnp.int32)
    return RowQueues(np.minimum(order, len(num_groups) - 1), ends - counts, ends)


def queue_order(num_rows: int, num_queues: int) -> Int[np.ndarray, "R Q"]:
    """Places of rows, in turns forth and back; from num_rows on there are none."""
    order = np.arange(-(-num_rows // num_queues) * num_queues, dtype=np.int32).reshape(-1, num_queues)
    order[1::2] = order[1::2, ::-1]
    return order
