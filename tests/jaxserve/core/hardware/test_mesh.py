import jax
import pytest
from jax.sharding import PartitionSpec as P

from jaxserve.core.hardware import mesh as m


@pytest.mark.parametrize("make", [m.abstract_mesh, lambda size: m.mesh_of(jax.devices()[:size])])
def test_all_devices_are_on_the_tensor_axis(make):
    mesh = make(2)
    assert dict(mesh.shape) == {"data": 1, "pipe": 1, "expert": 1, "tensor": 2}
    assert {axis: m.num_shards(mesh, axis) for axis in m.RULES} == dict.fromkeys(m.RULES, 2)
    assert m.spec(None, "kv_heads", "layer") == P(None, "tensor", None)


def test_every_rule_names_an_axis_of_the_mesh():
    assert set(m.RULES.values()) <= set(m.AXES)
