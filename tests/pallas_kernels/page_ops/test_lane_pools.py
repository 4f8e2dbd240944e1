"""Pools in LANES: writes and moves store the same bits as in ROWS."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_kernels.page_layouts import LANES
from pallas_kernels.page_ops import api
from pallas_kernels.page_ops.aligned_pieces import piece_len, plan_pieces
from pallas_kernels.page_ops.mosaic_tpu import piece_writes, row_moves
from pallas_kernels.page_ops.pack_tokens import pack_tokens
from tests.pallas_kernels.page_ops.random_pools import DEFAULT_EMITTERS, batches, bits, random_bits

LAYERS, PAGES = 2, 20
# dtype of the pool: (page size, heads, head dim, tokens)
CASES = {
    "float32": (128, 2, 64, 45),
    "bfloat16": (256, 3, 80, 200),
    "int8": (128, 3, 96, 300),
    "float8_e4m3fn": (128, 1, 80, 140),
}
BACKENDS = ("mosaic_tpu", "xla", "reference")
by_dtype = pytest.mark.parametrize("dtype", CASES)


class Case:
    """A pool of arbitrary bits, tokens to write, and the ops compiled for them."""

    def __init__(self, dtype: str):
        self.page_size, num_heads, head_dim, self.num_tokens = CASES[dtype]
        rng = np.random.default_rng(0)
        page = LANES.page_shape(self.page_size, head_dim, dtype)
        self.pool = random_bits(rng, (LAYERS, PAGES, num_heads, *page), dtype)
        shape = (self.num_tokens, num_heads, head_dim)
        self.k, self.v = (jnp.asarray(100 * rng.standard_normal(shape, np.float32), jnp.bfloat16) for _ in range(2))
        self.scales = {}
        if self.pool.dtype.itemsize == 1:
            self.scales = {n: jnp.asarray(rng.random(num_heads), jnp.float32) for n in ("k_scale", "v_scale")}
        self.packed = bits(pack_tokens(self.k, self.v, page[0], dtype, **self.scales, layout=LANES))
        self.write, self.move_rows = (
            {b: jax.jit(partial(op, backend=b, layout=LANES), compiler_options=DEFAULT_EMITTERS) for b in BACKENDS}
            for op in (api.write, api.move_rows)
        )

    def written(self, backend: str, slots: np.ndarray, begin: int, end: int, **options) -> np.ndarray:
        at = (jnp.asarray(slots), jnp.int32(begin), jnp.int32(end))
        return bits(self.write[backend](self.pool, jnp.int32(1), self.k, self.v, *at, **self.scales, **options))

    def expected(self, slots: np.ndarray, begin: int, end: int) -> np.ndarray:
        pool = bits(self.pool).copy()
        for token in range(begin, end):
            page, offset = divmod(slots[token], self.page_size)
            pool[1, page, :, :, offset] = self.packed[token]
        return pool


case_of = cache(Case)


@pytest.mark.thinned(1)
@by_dtype
@settings(deadline=None, max_examples=6)
@given(data=st.data())
def test_tokens_are_written_at_their_slots(dtype, data):
    case = case_of(dtype)
    rows = data.draw(batches(case.num_tokens, case.page_size, PAGES))
    slots = rows.slots(case.num_tokens, case.page_size)
    expected = case.expected(slots, rows.begin, rows.end)
    for backend in BACKENDS:
        first = 1 if backend == "xla" else 0  # it sends the other tokens to the scratch page
        got = case.written(backend, slots, rows.begin, rows.end)
        np.testing.assert_array_equal(got[:, first:], expected[:, first:], err_msg=backend)


def test_a_token_lies_where_the_layout_says():
    """The key's numbers from row 0 on, the value's from row H', at the offset's lane; rows between hold zeros."""
    case = case_of("float8_e4m3fn")
    got = case.written("mosaic_tpu", np.arange(140, dtype=np.int32) + 150, 3, 4)
    k, v = (
        np.asarray(x[3], np.float32) / case.scales[scale][:, None]
        for x, scale in ((case.k, "k_scale"), (case.v, "v_scale"))
    )
    stored = got[1, 1, :, :, 25].view("float8_e4m3fn").astype(np.float32)
    np.testing.assert_allclose(stored[:, :80], np.clip(k, -448, 448), rtol=0.07, atol=0.01)
    np.testing.assert_allclose(stored[:, 96:176], np.clip(v, -448, 448), rtol=0.07, atol=0.01)
    assert not stored[:, 80:96].any()
    assert not stored[:, 176:].any()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_tokens_are_moved_bit_for_bit(dtype, backend):
    case = case_of(dtype)
    rng = np.random.default_rng(1)
    size, page = PAGES * case.page_size, case.page_size
    src = rng.choice(size, 150).astype(np.int32)
    dst = np.concatenate([page + rng.permutation(size - page)[:148], [0, 0]]).astype(np.int32)
    got = bits(case.move_rows[backend](case.pool, src, dst))
    before = bits(case.pool)
    expected = before.copy()
    for s, d in zip(src, dst, strict=True):
        expected[:, d // page, :, :, d % page] = before[:, s // page, :, :, s % page]
    np.testing.assert_array_equal(got[:, 1:], expected[:, 1:])


def test_heads_and_layers_that_do_not_fit_together_go_one_after_the_other(monkeypatch):
    case = case_of("int8")
    tile_bytes = case.pool.shape[3] * 128
    monkeypatch.setattr(row_moves, "MAX_TILE_BYTES", tile_bytes)
    monkeypatch.setattr(piece_writes, "MAX_RING_BYTES", 2 * 3 * tile_bytes)
    slots = jnp.arange(300, dtype=jnp.int32) + 300
    write = jax.jit(partial(api.write, backend="mosaic_tpu", layout=LANES))
    got = write(case.pool, jnp.int32(1), case.k, case.v, slots, 2, 290, **case.scales)
    np.testing.assert_array_equal(bits(got), case.expected(np.asarray(slots), 2, 290))
    move = partial(api.move_rows, case.pool, slots[:9], slots[9:18], layout=LANES)
    np.testing.assert_array_equal(bits(move(backend="mosaic_tpu")), bits(move(backend="reference")))


def test_pools_and_pieces_that_the_kernels_do_not_serve_are_left_to_others():
    kv, ids = jnp.zeros((4, 1, 32), jnp.bfloat16), jnp.zeros(4, jnp.int32)
    small = jnp.zeros((1, 3, 1, 64, 64), jnp.bfloat16)
    with pytest.raises(NotImplementedError, match="64 lanes; tiles have 128"):
        api.write(small, jnp.int32(0), kv, kv, ids, 0, 4, layout=LANES, backend="mosaic_tpu")
    assert api.write(small, jnp.int32(0), kv, kv, ids, 0, 4, layout=LANES) is not None
    pool, pieces = jnp.zeros((1, 3, 1, 64, 128), jnp.bfloat16), plan_pieces(ids, 0, 4, 32)
    with pytest.raises(NotImplementedError, match="pieces of 32 slots are not the 128 lanes of a tile"):
        api.write(pool, jnp.int32(0), kv, kv, ids, 0, 4, pieces=pieces, layout=LANES, backend="mosaic_tpu")
    assert piece_len(256, LANES) == 128
    many = jnp.zeros(80_000, jnp.int32)
    with pytest.raises(NotImplementedError, match="80000 tokens of 64 numbers need more than 8388608 bytes of VMEM"):
        jax.eval_shape(partial(api.move_rows, layout=LANES, backend="mosaic_tpu"), pool, many, many)
