"""The GPU kernels of page operations, interpreted, equal numpy indexing bit for bit; no two copies race."""

from collections.abc import Callable, Iterator
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels.dispatch import interpreted_by
from pallas_kernels.page_layouts import LANES as LANE_LAYOUT
from pallas_kernels.page_ops import api
from pallas_kernels.page_ops import mosaic_gpu as kernels
from pallas_kernels.page_ops.pack_tokens import pack_tokens
from tests.pallas_kernels.page_ops.random_pools import batches, bits, moves, random_bits
from tests.pallas_kernels.race_findings import ON_GPU, race_findings

LAYERS, PAGES, HEADS, PAGE, HEAD_DIM, LANES, COUNT, TOKENS = 2, 10, 2, 16, 40, 128, 4, 8
DTYPES = ("bfloat16", "int8")
MORE_DTYPES = ("float16", "float32", "float8_e4m3fn", "float8_e5m2")
SHAPE = (LAYERS, PAGES, HEADS, PAGE, LANES)
RNG = np.random.default_rng(0)
K, V = (jnp.asarray(100 * RNG.standard_normal((TOKENS, HEADS, HEAD_DIM), np.float32), jnp.bfloat16) for _ in range(2))
# A thread block takes some 20 ms to interpret, so examples are few: a list is a block's work, or the work of two.
few_examples = settings(deadline=None, max_examples=6)
by_dtype = pytest.mark.parametrize("dtype", DTYPES)


@cache
def pool_of(dtype: str) -> jax.Array:
    return random_bits(np.random.default_rng(1), SHAPE, dtype)


@cache
def op(name: str) -> Callable[..., jax.Array]:
    return jax.jit(partial(getattr(api, name), backend="mosaic_gpu"))


def scales(dtype: str) -> dict[str, jax.Array]:
    is_8_bit = jnp.dtype(dtype).itemsize == 1
    return {"k_scale": jnp.array([0.5, 2.0]), "v_scale": jnp.array([1.0, 3.0])} if is_8_bit else {}


def assert_pages(got: jax.Array, expected: np.ndarray, first: int = 0) -> None:
    np.testing.assert_array_equal(bits(got)[:, first:], expected[:, first:])


@by_dtype
@few_examples
@given(rows=batches(TOKENS, PAGE, PAGES))
def test_tokens_are_written_at_their_slots(dtype, rows):
    pool, slots = pool_of(dtype), rows.slots(TOKENS, PAGE)
    packed = bits(pack_tokens(K, V, LANES, dtype, **scales(dtype)))
    expected = bits(pool).copy()
    for token in range(rows.begin, rows.end):
        page, offset = divmod(slots[token], PAGE)
        expected[1, page, :, offset] = packed[token]
    edges = (jnp.int32(rows.begin), jnp.int32(rows.end))
    assert_pages(op("write")(pool, jnp.int32(1), K, V, jnp.asarray(slots), *edges, **scales(dtype)), expected)


@by_dtype
@few_examples
@given(pairs=moves(PAGES, 1, COUNT))
def test_pages_are_copied(dtype, pairs):
    (src, dst), pool = pairs, pool_of(dtype)
    expected = bits(pool).copy()
    expected[:, dst] = bits(pool)[:, src]
    assert_pages(op("copy_pages")(pool, src, dst), expected, first=1)


def moved(pool: jax.Array, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    expected = bits(pool).copy()
    for s, d in zip(src, dst, strict=True):
        expected[:, d // PAGE, :, d % PAGE] = bits(pool)[:, s // PAGE, :, s % PAGE]
    return expected


@by_dtype
@few_examples
@given(pairs=moves(PAGES * PAGE, PAGE, COUNT))
def test_rows_are_moved(dtype, pairs):
    (src, dst), pool = pairs, pool_of(dtype)
    assert_pages(op("move_rows")(pool, src, dst), moved(pool, src, dst), first=1)


@few_examples
@given(ids=st.permutations(range(1, PAGES)))
def test_pages_that_leave_come_back_wherever_they_are_put(ids):
    pool, ids = pool_of("bfloat16"), np.array(ids[:COUNT], np.int32)
    pages = op("gather_pages")(pool, ids)
    assert_pages(pages, bits(pool)[:, ids])
    emptied = pool.at[:, ids].set(0)
    assert_pages(op("scatter_pages")(emptied, ids, pages), bits(pool))


def test_padding_leaves_the_scratch_page_alone():
    pool, ids = pool_of("bfloat16"), np.array([0, 3, 0, 0], np.int32)
    pages = pool[:, :COUNT]
    got = op("scatter_pages")(pool, ids, pages)
    assert_pages(got[:, 3], bits(pages[:, 1]))
    assert_pages(got[:, :3], bits(pool[:, :3]))


@pytest.mark.parametrize("dtype", MORE_DTYPES)
def test_every_bit_of_every_dtype_is_kept(dtype):
    """NaN payloads included: page operations do not interpret what they copy."""
    pool = pool_of(dtype)
    src, dst = np.array([40, 41, 70, 3], np.int32), np.array([41, 40, 159, 17], np.int32)
    assert_pages(op("move_rows")(pool, src, dst), moved(pool, src, dst))


def test_a_page_may_be_larger_than_a_thread_blocks_buffer(monkeypatch):
    monkeypatch.setattr(kernels, "MAX_BLOCK_BYTES", 3000)  # 11 rows of 256 bytes; 8 of them divide a page's 32
    pool, src, dst = pool_of("bfloat16"), np.array([1, 2], np.int32), np.array([2, 5], np.int32)
    expected = bits(pool).copy()
    expected[:, dst] = bits(pool)[:, src]
    assert_pages(jax.jit(partial(api.copy_pages, backend="mosaic_gpu"))(pool, src, dst), expected)


@pytest.fixture
def has_races() -> Iterator[Callable[..., bool]]:
    def run(name: str, *operands) -> bool:
        with interpreted_by(plgpu.InterpretGPUParams(detect_races=True)), race_findings(ON_GPU) as findings:
            jax.block_until_ready(getattr(api, name)(pool_of("bfloat16"), *operands, backend="mosaic_gpu"))
        assert findings
        return any(finding.races_found for finding in findings)

    yield run
    gpu_callbacks.reset_gpu_interpret_mode_state()


SLOTS = jnp.array([40, 41, 70, 3, 100, 90, 33, 17], jnp.int32)
CALLS = {
    "write": (jnp.int32(1), K, V, SLOTS, 1, 7),
    "copy_pages": (jnp.array([1, 2, 3, 0], jnp.int32), jnp.array([2, 1, 5, 0], jnp.int32)),
    "move_rows": (SLOTS, SLOTS[::-1]),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_two_copies_meet(has_races, name):
    assert not has_races(name, *CALLS[name])


def test_a_missing_wait_is_caught(has_races, monkeypatch):
    """That for what comes in by the race detector; that for what goes out by the interpreter at the kernel's end."""
    with monkeypatch.context() as patch:
        patch.setattr(plgpu, "barrier_wait", lambda barrier: None)
        assert has_races("write", *CALLS["write"])
    monkeypatch.setattr(plgpu, "wait_smem_to_gmem", lambda n: None)
    with pytest.raises(jax.errors.JaxRuntimeError, match="Not all copy_smem_to_gmem read-side operations completed"):
        has_races("write", *CALLS["write"])


@pytest.mark.parametrize(
    ("pool", "layout", "reason"),
    [
        (jnp.zeros((1, 3, 1, 16, 8), jnp.int8), {}, "rows have 8 bytes; copies need a multiple of 16, at most 32768"),
        (jnp.zeros((1, 3, 1, 16, 128)), {"layout": LANE_LAYOUT}, "the lanes layout is for TPUs"),
    ],
)
def test_pools_that_the_kernels_do_not_serve_are_left_to_others(pool, layout, reason):
    slots = jnp.zeros(4, jnp.int32)
    with pytest.raises(NotImplementedError, match=f"mosaic_gpu: {reason}"):
        api.move_rows(pool, slots, slots, **layout, backend="mosaic_gpu")


def test_an_empty_list_is_left_to_others():
    with pytest.raises(NotImplementedError, match="the list is empty"):
        op("gather_pages")(pool_of("int8"), jnp.zeros(0, jnp.int32))
