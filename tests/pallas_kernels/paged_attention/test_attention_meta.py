"""The fields per token follow from the fields per row."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_kernels.paged_attention.batch_meta import AttentionMeta, make_meta, sequence_positions

NUM_TOKENS, NUM_ROWS, WIDTH, PAGE = 32, 6, 8, 4
derive = jax.jit(make_meta, static_argnames=("num_tokens", "page_size"))
rows_strategy = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 20), st.integers(0, 5)), max_size=NUM_ROWS)


def meta_of(rows: list[tuple[int, int, int]], tree=None) -> AttentionMeta:
    """From (q_len, earlier positions, first page) of each row; padding rows hold garbage, as reused buffers do."""
    garbage = [(9, 99, 1)] * (NUM_ROWS - len(rows))
    q_lens, earlier, first_pages = np.array([*rows, *garbage]).T
    first_pages = np.minimum(first_pages, earlier // PAGE)
    tables = np.arange(1, NUM_ROWS * WIDTH + 1).reshape(NUM_ROWS, WIDTH)
    columns = (np.concatenate([[0], np.cumsum(q_lens)]), earlier + q_lens, tables, first_pages, len(rows), 0)
    return derive(*(jnp.asarray(x, jnp.int32) for x in columns), num_tokens=NUM_TOKENS, page_size=PAGE, tree=tree)


@settings(deadline=None, max_examples=60)
@given(rows_strategy)
def test_every_token_is_written_where_its_position_lies(rows):
    meta = jax.tree.map(np.asarray, meta_of(rows))
    token = 0
    for row, (q_len, earlier, _) in enumerate(rows):
        for position in range(earlier, earlier + q_len):
            assert meta.rows[token] == row
            assert meta.kv_positions[token] == position
            page = meta.tables[row, position // PAGE - meta.first_pages[row]]
            assert meta.write_slots[token] == page * PAGE + position % PAGE
            token += 1
    assert (meta.write_slots[token:] < PAGE).all(), "padding is written to the scratch page"
    assert ((meta.rows >= 0) & (meta.rows < NUM_ROWS)).all()


def test_positions_on_a_tree_are_depths_after_the_text():
    #   0 ── 1 ── 3      node 4 continues the text alone: its bits name no other draft node
    #    └── 2
    bits = [0b00001, 0b00011, 0b00101, 0b01011, 0b10000] + [-1] * (NUM_TOKENS - 5)
    meta = meta_of([(5, 7, 0), (4, 2, 0)], tree=jnp.asarray(bits, jnp.int32)[:, None])
    np.testing.assert_array_equal(sequence_positions(meta)[:9], [7, 8, 8, 9, 7, 2, 3, 4, 5])


def test_tokens_beyond_the_bits_are_causal():
    columns = ([0, 40], [45], np.ones((1, 12)), [0], 1, 0)
    causal = jnp.full((40, 1), -1, jnp.int32)
    meta = derive(*(jnp.asarray(x, jnp.int32) for x in columns), num_tokens=40, page_size=PAGE, tree=causal)
    np.testing.assert_array_equal(sequence_positions(meta), np.arange(5, 45))
