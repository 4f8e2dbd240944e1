"""Saved leaves widen to the shapes of a mesh and narrow back, and are sharded along any divisible axis."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from checkpoints.mapping.canonical import divisible, narrow, widen


@pytest.mark.parametrize(("num_heads", "num_kv_heads", "kv_repeat"), [(8, 2, 1), (8, 2, 2), (8, 2, 4), (8, 1, 8)])
@pytest.mark.parametrize("rest", [(), (3,)])
def test_each_query_head_keeps_its_rows_and_its_key_head(num_heads, num_kv_heads, kv_repeat, rest):
    head_dim = 2
    q, k, v = (
        np.arange(n * head_dim).reshape(n, head_dim, *[1] * len(rest)) + start + np.zeros(rest)
        for n, start in ((num_heads, 0), (num_kv_heads, 100), (num_kv_heads, 200))
    )

    def fused(num_groups):
        per_group, per_head = num_heads // num_groups, num_groups // num_kv_heads
        groups = []
        for g in range(num_groups):
            heads = [q[g * per_group + i] for i in range(per_group)]
            groups.append(np.concatenate([*heads, k[g // per_head], v[g // per_head]]))
        return np.stack(groups).astype(np.float32)

    saved, wide = fused(num_kv_heads), fused(num_kv_heads * kv_repeat)
    np.testing.assert_array_equal(widen(jax.numpy.asarray(saved), wide.shape, head_dim), wide)
    np.testing.assert_array_equal(narrow(jax.numpy.asarray(wide), saved.shape, head_dim), saved)


def test_rows_behind_the_vocabulary_are_zero_and_are_not_saved():
    saved = np.ones((5, 3), np.float32)
    wide = widen(jax.numpy.asarray(saved), (8, 3), 2)
    np.testing.assert_array_equal(wide, np.concatenate([saved, np.zeros((3, 3), np.float32)]))
    np.testing.assert_array_equal(narrow(wide, (5, 3), 2), saved)


@pytest.mark.parametrize(
    ("shape", "spec", "is_stacked", "expected"),
    [
        ((8, 6), P("tensor"), False, P("tensor", None)),
        ((7, 8), P("tensor"), False, P(None, "tensor")),
        ((7, 6), P("tensor"), False, P(None, None)),
        ((2, 24, 32), P(None, "tensor"), True, P(None, None, "tensor")),
        ((6, 12), P(None, None, "tensor"), True, P(None, "tensor")),
        ((6, 12), P(None, None, ("data", "tensor")), True, P(None, None)),
        ((6, 16), P(None, "data", "tensor"), True, P("data", "tensor")),
        ((5, 16), P(None, "data", "tensor"), True, P(None, "tensor")),
    ],
)
def test_leaves_lie_along_an_axis_that_divides(shape, spec, is_stacked, expected):
    mesh = jax.sharding.AbstractMesh((2, 4), ("data", "tensor"), (AxisType.Auto, AxisType.Auto))
    found = divisible(shape, NamedSharding(mesh, spec), is_stacked=is_stacked)
    assert found == NamedSharding(mesh, expected)
    assert NamedSharding(mesh, spec) != found or spec == expected


def test_one_device_stays_one_device():
    place = SingleDeviceSharding(jax.devices()[1])
    assert divisible((3, 3), place, is_stacked=False) is place
