"""Pages with copies of sinks: keys as far as they were written at other positions, in both page layouts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.core.hardware.mesh import make_mesh
from jaxserve.kv.kv_state import KVState
from jaxserve.models.config.layer_kind import GroupedAttention
from jaxserve.models.config.rope import Rope
from jaxserve.models.rotary import rope_tables, rotate
from jaxserve.runner.sink_copies import MAX_COPIES, SinkCopies, copy_sinks
from pallas_kernels.page_layouts import LANES, ROWS

NUM_LAYERS, NUM_PAGES, NUM_HEADS, HEAD_DIM = 2, 9, 2, 24
KINDS = {
    "whole heads": Rope(1e4),
    "half of each head, with factors": Rope(1e6, dim=12, factors=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0), attention_factor=1.2),
}


@pytest.mark.thinned(1)
@pytest.mark.parametrize("rope", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(("layout", "page_size"), [(ROWS, 16), (LANES, 128)])
def test_sinks_are_as_if_written_at_their_new_positions(layout, page_size, rope):
    attention = GroupedAttention(2 * NUM_HEADS, NUM_HEADS, HEAD_DIM, rope)
    num_sinks, dropped = 5, [64, 4096]
    random = np.random.default_rng(0)
    shape = (NUM_LAYERS, NUM_PAGES, NUM_HEADS, *layout.page_shape(page_size, HEAD_DIM, jnp.float32))
    pool = np.array(random.normal(size=shape), np.float32)
    keys = random.normal(size=(num_sinks, NUM_LAYERS * NUM_HEADS, HEAD_DIM)).astype(np.float32)

    def written(start):
        turned = rotate(jnp.asarray(keys), *rope_tables(rope, HEAD_DIM, start + jnp.arange(num_sinks, dtype=jnp.int32)))
        by_head = np.asarray(turned).reshape(num_sinks, NUM_LAYERS, NUM_HEADS, HEAD_DIM)
        return by_head.transpose(1, 2, 0, 3)

    def positions(pool, page):
        return np.asarray(layout.by_position(jnp.asarray(pool[:, page])))

    first = np.array(positions(pool, 1))
    first[:, :, :num_sinks, :HEAD_DIM] = written(0)
    pool[:, 1] = np.asarray(layout.by_position(jnp.asarray(first)))
    columns = np.zeros((4, MAX_COPIES), np.int32)
    columns[:, :2] = [[1, 1], [2, 3], [4, 5], dropped]
    copies = SinkCopies(*map(jnp.asarray, columns))
    mesh = make_mesh(1)
    with jax.set_mesh(mesh):
        kv = KVState(jnp.asarray(pool))
        found = np.asarray(copy_sinks(mesh, layout, num_sinks, [(attention, copies)], kv).pool)
    for rest, own, distance in zip((2, 3), (4, 5), dropped, strict=True):
        own_page = positions(found, own)
        np.testing.assert_allclose(own_page[:, :, :num_sinks, :HEAD_DIM], written(distance), atol=2e-3)
        np.testing.assert_array_equal(own_page[:, :, :num_sinks, HEAD_DIM:], first[:, :, :num_sinks, HEAD_DIM:])
        np.testing.assert_array_equal(own_page[:, :, num_sinks:], positions(pool, rest)[:, :, num_sinks:])
    others = [0, 1, 2, 3, 6, 7, 8]
    np.testing.assert_array_equal(found[:, others], pool[:, others])
