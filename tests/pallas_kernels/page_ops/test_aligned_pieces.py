"""Pieces cover the given tokens, each once and in order; each lies in one aligned run; KV groups share them."""

from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_kernels.page_ops.aligned_pieces import piece_len, plan_pieces
from tests.pallas_kernels.page_ops.random_pools import batches

TOKENS, PAGE, PAGES = 50, 48, 20
plan = jax.jit(plan_pieces, static_argnums=3)


@settings(deadline=None, max_examples=100)
@given(rows=batches(TOKENS, PAGE, PAGES), length=st.sampled_from([8, 16]))
def test_pieces_cover_the_tokens_that_are_written(rows, length):
    slots = rows.slots(TOKENS, PAGE)
    pieces = plan(slots, rows.begin, rows.end, length)
    first_tokens, counts = (np.asarray(x)[: int(pieces.num_pieces)] for x in (pieces.first_tokens, pieces.counts))
    tokens = [list(range(t, t + n)) for t, n in zip(first_tokens, counts, strict=True)]
    assert list(chain.from_iterable(tokens)) == list(range(rows.begin, rows.end))
    for piece in tokens:
        assert piece
        assert len({slot // length for slot in slots[piece]}) == 1
        assert np.all(np.diff(slots[piece]) == 1)
    touched = {slot // length for slot in slots[rows.begin : rows.end]}
    assert len(tokens) == len(touched), "no piece is written twice, none is cut without need"
    assert not np.any(np.asarray(pieces.counts)[len(tokens) :])


@settings(deadline=None, max_examples=50)
@given(rows=batches(TOKENS, PAGE, PAGES))
def test_groups_share_pieces(rows):
    one, another = (plan(rows.slots(TOKENS, PAGE, reverse), rows.begin, rows.end, 16) for reverse in (False, True))
    jax.tree.map(np.testing.assert_array_equal, one, another)


def test_every_token_may_be_a_piece_of_its_own():
    slots = jnp.arange(1, 65, dtype=jnp.int32) * 64 + 5
    pieces = plan(slots, 0, 64, 32)
    assert int(pieces.num_pieces) == 64
    np.testing.assert_array_equal(pieces.counts, 1)


@pytest.mark.parametrize(("page", "length"), [(16, 16), (48, 16), (64, 32), (128, 32), (8, 8), (40, 8)])
def test_the_longest_piece_divides_the_page(page, length):
    assert piece_len(page) == length
