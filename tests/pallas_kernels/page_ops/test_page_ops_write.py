"""Every back end writes the given tokens at their slots, bit for bit, and changes nothing else."""

import inspect
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas_kernels.page_ops import api
from pallas_kernels.page_ops.aligned_pieces import piece_len, plan_pieces
from pallas_kernels.page_ops.mosaic_tpu import piece_writes
from pallas_kernels.page_ops.pack_tokens import pack_tokens
from tests.pallas_kernels.page_ops.random_pools import DEFAULT_EMITTERS, batches, bits, random_bits

LAYERS, PAGES = 2, 20
# dtype of the pool: (page size, heads, head dim, lanes, tokens)
CASES = {
    "float32": (24, 2, 64, 128, 45),
    "bfloat16": (64, 1, 80, 256, 45),
    "int8": (32, 3, 96, 256, 64),
    "float8_e5m2": (96, 2, 256, 512, 33),  # test_lane_pools.py has the other type of 8 bits
}
BACKENDS = ("mosaic_tpu", "xla", "reference")


class Case:
    """Arrays of one shape: a pool of arbitrary bits and tokens to write, and the op compiled for them."""

    def __init__(self, dtype: str):
        self.page_size, num_heads, head_dim, self.lanes, self.num_tokens = CASES[dtype]
        rng = np.random.default_rng(0)
        self.pool = random_bits(rng, (LAYERS, PAGES, num_heads, self.page_size, self.lanes), dtype)
        shape = (self.num_tokens, num_heads, head_dim)
        self.k, self.v = (jnp.asarray(100 * rng.standard_normal(shape, np.float32), jnp.bfloat16) for _ in range(2))
        self.scales = {}
        if self.pool.dtype.itemsize == 1:
            self.scales = {n: jnp.asarray(rng.random(num_heads), jnp.float32) for n in ("k_scale", "v_scale")}
        self.rows = bits(pack_tokens(self.k, self.v, self.lanes, dtype, **self.scales))
        self.write = {b: jax.jit(partial(api.write, backend=b), compiler_options=DEFAULT_EMITTERS) for b in BACKENDS}

    def got(self, backend: str, slots: np.ndarray, begin: int, end: int, **options) -> np.ndarray:
        at = (jnp.asarray(slots), jnp.int32(begin), jnp.int32(end))
        pool = self.write[backend](self.pool, jnp.int32(1), self.k, self.v, *at, **self.scales, **options)
        return bits(pool)

    def expected(self, slots: np.ndarray, begin: int, end: int) -> np.ndarray:
        pool = bits(self.pool).copy()
        for token in range(begin, end):
            page, offset = divmod(slots[token], self.page_size)
            pool[1, page, :, offset] = self.rows[token]
        return pool


case_of = cache(Case)


@pytest.fixture(scope="module", params=CASES)
def case(request) -> Case:
    return case_of(request.param)


@pytest.mark.thinned(2)
@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_tokens_are_written_at_their_slots(case, data):
    rows = data.draw(batches(case.num_tokens, case.page_size, PAGES))
    slots = rows.slots(case.num_tokens, case.page_size)
    expected = case.expected(slots, rows.begin, rows.end)
    for backend in BACKENDS:
        first = 1 if backend == "xla" else 0  # it sends the other tokens to the scratch page
        got = case.got(backend, slots, rows.begin, rows.end)
        np.testing.assert_array_equal(got[:, first:], expected[:, first:], err_msg=backend)


@settings(deadline=None, max_examples=10)
@given(rows=batches(CASES["bfloat16"][4], CASES["bfloat16"][0], PAGES))
@pytest.mark.parametrize("length", [16, 32])
def test_pieces_serve_every_group_of_a_batch(length, rows):
    """They are planned from one group's slots and used with another's; shorter ones than the usual serve as well."""
    case = case_of("bfloat16")
    of_one, of_another = (rows.slots(case.num_tokens, case.page_size, reverse) for reverse in (False, True))
    pieces = plan_pieces(jnp.asarray(of_one), rows.begin, rows.end, length)
    got = case.got("mosaic_tpu", of_another, rows.begin, rows.end, pieces=pieces)
    np.testing.assert_array_equal(got, case.expected(of_another, rows.begin, rows.end))


@pytest.mark.parametrize("depth", [2, 3])
def test_a_small_ring_writes_the_same(monkeypatch, depth):
    """Wide pools leave VMEM for few pieces in flight, and every token of a decode batch is a piece."""
    case = case_of("bfloat16")
    page_size, num_heads, _, lanes, num_tokens = CASES["bfloat16"]
    monkeypatch.setattr(piece_writes, "MAX_RING_BYTES", depth * num_heads * (48 + 32) * lanes * 2)
    slots = (1 + np.arange(num_tokens, dtype=np.int32) % 19) * page_size + np.arange(
        num_tokens, dtype=np.int32
    ) // 19 * 32
    got = jax.jit(partial(api.write, backend="mosaic_tpu"))(case.pool, jnp.int32(1), case.k, case.v, slots, 0, 38)
    np.testing.assert_array_equal(bits(got), case.expected(slots, 0, 38))


@pytest.mark.parametrize(
    ("shape", "dtype", "reason"),
    [
        ((1, 3, 1, 8, 128), "bfloat16", "page size 8 is not a multiple of 16, the rows of a tile of bfloat16"),
        ((1, 3, 1, 16, 128), "int8", "page size 16 is not a multiple of 32"),
        ((1, 3, 1, 16, 96), "float32", "pool has 96 lanes; tiles have 128"),
        ((1, 3, 1, 16, 128), "float16", "pool has dtype float16; the kernels serve float32, bfloat16"),
    ],
)
def test_pools_that_are_not_made_of_tiles_are_left_to_others(shape, dtype, reason):
    pool, ids = jnp.zeros(shape, dtype), jnp.zeros(4, jnp.int32)
    kv = jnp.zeros((4, 1, 32), jnp.float32)
    calls = {
        "write": (jnp.int32(0), kv, kv, ids, 0, 4),
        "move_rows": (ids, ids),
        "copy_pages": (ids, ids),
        "gather_pages": (ids,),
        "scatter_pages": (ids, jnp.zeros((1, 4, *shape[2:]), dtype)),
    }
    for name, operands in calls.items():
        with pytest.raises(NotImplementedError, match=reason):
            getattr(api, name)(pool, *operands, backend="mosaic_tpu")
        assert getattr(api, name)(pool, *operands, backend="auto") is not None


def test_pieces_that_lie_across_tiles_or_pages_are_refused():
    pool, kv = jnp.zeros((1, 3, 1, 48, 128), jnp.bfloat16), jnp.zeros((4, 1, 32), jnp.float32)
    slots = jnp.arange(4, dtype=jnp.int32)
    for length in (8, 32):
        pieces = plan_pieces(slots, 0, 4, length)
        with pytest.raises(NotImplementedError, match=f"pieces of {length} slots do not lie between tiles of 16"):
            api.write(pool, jnp.int32(0), kv, kv, slots, 0, 4, pieces=pieces, backend="mosaic_tpu")
    assert piece_len(48) == 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": jnp.zeros((4, 2, 80))}, r"k has shape \(4, 2, 80\), but the pool has 2 heads and 128 lanes"),
        ({"k": jnp.zeros((4, 1, 64))}, r"k has shape \(4, 1, 64\), but the pool has 2 heads"),
        ({"v": jnp.zeros((4, 2, 32))}, r"k has shape \(4, 2, 64\), but v \(4, 2, 32\)"),
        ({"slots": jnp.zeros(3, jnp.int32)}, r"but v .* and slots \(3,\)"),
        ({"v_scale": jnp.ones(2)}, "v_scale scales the numbers of an 8-bit pool; this pool holds float32"),
        ({"backend": "cuda"}, "backend='cuda' is unknown"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_contradiction_is_an_error_that_names_it(change, message):
    kv = jnp.zeros((4, 2, 64))
    arguments = {"k": kv, "v": kv, "slots": jnp.zeros(4, jnp.int32)} | change
    as_users_call_it = inspect.unwrap(api.write)  # the suite's shape checks would be first
    with pytest.raises(ValueError, match=message):
        as_users_call_it(jnp.zeros((1, 3, 2, 16, 128)), jnp.int32(0), begin=0, end=4, **arguments)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_donated_pool_is_written_in_place(dtype):
    pool = jax.ShapeDtypeStruct((30, 256, 3, 16, 128), dtype)
    scalar, slots = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((64,), jnp.int32)
    kv = jax.ShapeDtypeStruct((64, 3, 64), dtype)
    lowered = jax.jit(api.write, donate_argnums=0).lower(pool, scalar, kv, kv, slots, scalar, scalar)
    memory = lowered.compile().memory_analysis()
    assert memory.alias_size_in_bytes == pool.size * pool.dtype.itemsize
    assert memory.temp_size_in_bytes <= 4 * kv.size * kv.dtype.itemsize + 4096
