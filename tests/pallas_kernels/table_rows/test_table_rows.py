"""Rows of tables by the TPU kernels, interpreted, are those of the tables."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from pallas_kernels.table_rows.api import table_rows
from pallas_kernels.table_rows.mosaic_tpu import MAX_TOKENS

NUM_ROWS = 512
INDEX = np.array([0, 511, 31, 32, 127, 128, 7, 7], np.int32)


def random_tables(widths: dict[type, int]) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [
        random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (NUM_ROWS, width), dtype, endpoint=True)
        for dtype, width in widths.items()
    ]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("are_multiplied", [False, True])
@pytest.mark.parametrize("backend", ["mosaic_tpu", "xla"])
@pytest.mark.parametrize("index", [INDEX, INDEX[:1], np.resize(INDEX[::-1], MAX_TOKENS), np.resize(INDEX, 21)])
def test_rows_are_those_of_the_tables(backend, index, are_multiplied):
    tables = random_tables({np.uint8: 192, np.int8: 256, np.uint16: 16, np.int16: 3})
    run = jax.jit(table_rows, static_argnames=("are_multiplied", "backend"))
    found = run([*map(jnp.asarray, tables)], jnp.asarray(index), are_multiplied=are_multiplied, backend=backend)
    for rows, table in zip(found, tables, strict=True):
        assert rows.dtype == table.dtype
        np.testing.assert_array_equal(rows, table[index])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("are_multiplied", [False, True])
@pytest.mark.parametrize("shape", [(1, 2), (2, 2), (4, 1)])
def test_devices_add_the_rows_that_each_has(are_multiplied, shape):
    tables, num_devices = random_tables({np.uint8: 192, np.int8: 64, np.uint16: 16}), math.prod(shape)
    mesh = jax.make_mesh(shape, ("x", "y"), (AxisType.Auto,) * 2, devices=jax.devices()[:num_devices])
    with jax.set_mesh(mesh):
        divided = [jax.device_put(table, NamedSharding(mesh, PartitionSpec(("x", "y")))) for table in tables]
        run = jax.jit(partial(table_rows, are_multiplied=are_multiplied, backend="mosaic_tpu"))
        found = run(divided, jnp.asarray(INDEX))
        with pytest.raises(NotImplementedError, match=f"no multiple of {num_devices} devices"):
            run([table[:-1] for table in tables], jnp.asarray(INDEX))
    for rows, table in zip(found, tables, strict=True):
        assert rows.dtype == table.dtype
        np.testing.assert_array_equal(rows, table[INDEX])


@pytest.mark.parametrize(
    ("tables", "index", "reason"),
    [
        ([jnp.zeros((96, 64), jnp.bfloat16)], INDEX, "8 and 16 bits, not of bfloat16"),
        ([jnp.zeros((96, 64), jnp.int32)], INDEX, "8 and 16 bits, not of int32"),
        ([jnp.zeros((95, 64), jnp.int8)], INDEX, "95 rows are no whole tiles of 32"),
        ([jnp.zeros((96, 64), jnp.int8)], np.resize(INDEX, MAX_TOKENS + 1), "at most 64 rows, not 65"),
        (
            [jnp.zeros((96, 8192), jnp.int8)],
            np.resize(INDEX, MAX_TOKENS),
            "16777216 bytes, more than 12582912",
        ),
    ],
)
def test_what_the_kernel_does_not_take(tables, index, reason):
    with pytest.raises(NotImplementedError, match=reason):
        table_rows(tables, jnp.asarray(index), backend="mosaic_tpu")


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (jnp.zeros((128, 64), jnp.bfloat16), "8 and 16 bits, not of bfloat16"),
        (jnp.zeros((96, 64), jnp.int8), "96 rows are no whole tiles of 128"),
        (jnp.zeros((128, 24_576), jnp.int8), "50331648 bytes, more than 41943040"),
    ],
)
def test_what_the_kernel_of_heads_does_not_take(table, reason):
    with pytest.raises(NotImplementedError, match=reason):
        table_rows([table], jnp.asarray(INDEX), are_multiplied=True, backend="mosaic_tpu")
