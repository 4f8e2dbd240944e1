"""Rows are handled longest first, whatever their order in the batch."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pallas_kernels.paged_attention.xla.row_order import row_order

NUM_ROWS = 12


@given(st.lists(st.integers(0, 9), min_size=NUM_ROWS, max_size=NUM_ROWS), st.integers(0, NUM_ROWS))
def test_the_first_rows_are_sorted_by_length_and_the_others_come_last(lengths, num_handled):
    order = jax.jit(row_order)(jnp.asarray(lengths, jnp.int32), jnp.int32(num_handled))
    rows, kv_lens = np.asarray(order.rows), np.asarray(lengths)
    assert set(rows[:num_handled]) == set(range(num_handled))
    assert np.all(np.diff(kv_lens[rows[:num_handled]]) <= 0)
    np.testing.assert_array_equal(rows[np.asarray(order.places)], np.arange(NUM_ROWS))
