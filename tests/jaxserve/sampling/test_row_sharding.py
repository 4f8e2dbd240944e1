"""Rows divided over devices have the same results as on one device, and no device holds the logits of all rows."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.core.hardware.mesh import make_mesh, sharding
from jaxserve.sampling.row_sharding import shard_rows
from jaxserve.sampling.sample_tokens import sample_tokens
from jaxserve.sampling.slot_state import init_slot_state
from tests.jaxserve.sampling.rows import make_batch

V = 1024
FIELDS = [{}, {"temperature": 1.0, "top_p": 0.9}, {"temperature": 1.3}, {"temperature": 0.7, "top_k": 5}]


def draw_rows(rows, slots):
    logits, batch, positions = rows
    return sample_tokens(logits, batch, positions, slots)[:2]


def arguments(num_rows, num_devices):
    mesh = make_mesh(num_devices)
    logits = np.random.default_rng(0).normal(size=(num_rows, V)).astype(np.float32)
    batch = make_batch([FIELDS[i % 4] | {"seed_low": i} for i in range(num_rows)])
    rows = (jax.device_put(logits, sharding(mesh, None, "vocab")), batch, jnp.arange(num_rows, dtype=jnp.int32))
    return mesh, rows, init_slot_state(4, V, 4)


@pytest.mark.thinned(1)
@pytest.mark.parametrize("num_rows", [1, 4, 6])
def test_rows_come_out_as_on_one_device(num_rows):
    _, rows, slots = arguments(num_rows, 1)
    alone = jax.jit(draw_rows)(rows, slots)
    mesh, rows, slots = arguments(num_rows, 4)
    divided = jax.jit(lambda rows, slots: shard_rows(mesh, draw_rows, rows, slots))(rows, slots)
    jax.tree.map(np.testing.assert_array_equal, divided, alone)


def test_no_device_holds_the_logits_of_all_rows():
    mesh, rows, slots = arguments(8, 4)
    whole = re.compile(r"f32\[8,1024\]")
    compiled = jax.jit(lambda rows, slots: shard_rows(mesh, draw_rows, rows, slots)).lower(rows, slots).compile()
    assert not whole.search(compiled.as_text())
    with jax.set_mesh(mesh):
        naive = jax.jit(draw_rows).lower(jax.device_put(rows, sharding(mesh)), slots).compile()
    assert whole.search(naive.as_text())
