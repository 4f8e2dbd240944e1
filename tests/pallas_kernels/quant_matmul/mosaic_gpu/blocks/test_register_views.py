"""Views of registers give each thread what the operations that interpret them say, on a warpgroup emulated in numpy.

The kernel is interpreted with these operations, so its results prove nothing of the views that a GPU runs.
"""

from types import SimpleNamespace
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu

from pallas_kernels.quant_matmul.mosaic_gpu.blocks import register_views
from pallas_kernels.quant_matmul.mosaic_gpu.blocks.register_views import (
    BYTES,
    HALVES,
    WORDS,
    apart,
    per_row,
    reinterpreted,
    shared_values,
    spread,
    table_bytes,
)

THREADS = 128


def places(layout, shape):
    """Of each element: its thread among those that have it, its register and its place in this vector."""
    layout = layout.to_mgpu()
    tiled = layout.tiling.tile_shape(shape)
    for index in np.ndindex(shape):
        at = list(layout.tiling.tile_indices(index))
        vector, threads = at[layout.vector_dim], [0]
        for dim in (*layout.warp_dims, *layout.lane_dims):
            if isinstance(dim, int):
                threads = [thread * tiled[dim] + at[dim] for thread in threads]
                at[dim] = 0
            else:
                threads = [thread * dim.times + i for thread in threads for i in range(dim.times)]
        at[layout.vector_dim] = 0
        yield index, threads, tuple(at), vector


def emulated(rule, x, source, shape, dtype, target, *memory):
    """`_view`, with the registers of each thread as arrays."""
    x, y = np.asarray(x), np.zeros(shape, dtype)
    registers = [np.empty(source.to_mgpu().registers_shape(x.shape), object) for _ in range(THREADS)]
    for index, threads, register, place in places(source, x.shape):
        for thread in threads:
            if registers[thread][register] is None:
                registers[thread][register] = np.zeros(source.to_mgpu().vector_length, x.dtype)
            registers[thread][register][place] = x[index]
    found = [np.empty(target.to_mgpu().registers_shape(shape), object) for _ in range(THREADS)]
    for thread in range(THREADS):
        for i, vector in enumerate(rule(registers[thread], jnp.dtype(dtype), *memory)):
            found[thread].flat[i] = vector
    for index, threads, register, place in places(target, shape):
        copies = [found[thread][register] for thread in threads]
        assert all(len(copy) == target.to_mgpu().vector_length and (copy == copies[0]).all() for copy in copies)
        y[index] = copies[0][place]
    return jnp.asarray(y)


def permuted_bytes(first, second, selector):
    """PTX's `prmt.b32`, as its documentation defines it, without signs."""
    source = np.concatenate([first, second]).view(np.uint8)
    digits = [(int(selector[0]) >> 4 * i) & 15 for i in range(4)]
    assert max(digits) < 8, "the highest bit of a digit would replicate a sign"
    return source[digits].view(first.dtype)


@pytest.fixture
def on_a_gpu():
    """Views are those of a GPU, with vectors that are arrays."""

    def run(view, *arguments):
        with (
            patch.object(register_views, "gpu_interpretation", lambda: None),
            patch.object(register_views, "_view", emulated),
            patch.multiple(
                register_views.utils,
                bitcast=lambda vector, dtype: vector.view(dtype),
                vector_slice=lambda vector, part: vector[part],
                vector_concat=np.concatenate,
                dtype_to_ir_type=lambda dtype: dtype,
                c=lambda word, dtype: np.array([word], dtype),
                prmt=permuted_bytes,
                vector=SimpleNamespace(
                    extract=lambda vector, **_: vector[0], broadcast=lambda dtype, x: dtype.type([x])
                ),
                memref=SimpleNamespace(load=lambda values, index: values[index[0]]),
                arith=SimpleNamespace(index_castui=lambda _, code: int(code)),
                ir=SimpleNamespace(IndexType=SimpleNamespace(get=lambda: None)),
                warp_barrier=lambda: None,
            ),
        ):
            return np.asarray(view(*arguments))

    return run


def bits(dtype, *shape):
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.integers(0, 256, (*shape, jnp.dtype(dtype).itemsize)).astype(np.uint8).view(dtype)[..., 0])


def bytes_named(x):
    return table_bytes([3, 1, 4, 159, 26, 255, 0, 128], x & jnp.uint32(0x7777))


def values_of(codes):
    return shared_values(np.random.default_rng(0).normal(size=256).astype(np.float32), codes)


@pytest.mark.parametrize(
    ("view", "x", "arguments"),
    [
        (reinterpreted, bits(np.uint8, 64, 32), (jnp.uint32, BYTES, WORDS)),
        (reinterpreted, bits(np.int8, 64, 128), (jnp.uint32, BYTES, WORDS)),
        (reinterpreted, bits(np.uint32, 64, 8), (jnp.uint16, WORDS, HALVES)),
        (reinterpreted, bits(np.uint32, 64, 32), (jnp.uint16, WORDS, HALVES)),
        (apart, bits(np.uint16, 64, 8), (8,)),
        (apart, bits(np.uint16, 64, 2), (2,)),
        (apart, bits(np.uint8, 64, 4), (4,)),
        (bytes_named, bits(np.uint32, 64, 16), ()),
        (values_of, bits(np.uint8, 64, 4), ()),
        (spread, bits(np.uint16, 64, 8), ([0, 0, 5, 7],)),
        (spread, bits(np.uint16, 64, 1), ([0] * 8,)),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_a_view_is_the_operation_that_interprets_it(on_a_gpu, view, x, arguments):
    np.testing.assert_array_equal(on_a_gpu(view, x, *arguments), np.asarray(view(x, *arguments)))


def test_the_control_another_layout_is_seen(on_a_gpu):
    """Its vectors are as long, but their halves are of two rows."""
    x = bits(np.uint32, 64, 8)
    found = on_a_gpu(reinterpreted, x, jnp.uint16, WORDS, plgpu.Layout.WGMMA_TRANSPOSED)
    assert (found != np.asarray(reinterpreted(x, jnp.uint16, WORDS, HALVES))).any()


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_every_thread_has_whole_rows(width):
    """Those of the same lines as `HALVES` gives it."""
    rows = [
        {index[0] for index, threads, *_ in places(layout, (64, 8 * width)) if 37 in threads}
        for layout in (per_row(width), HALVES)
    ]
    assert rows[0] == rows[1]
