"""The front asks its back ends in order; those that step aside are named with their reasons."""

import jax
import numpy as np
import pytest
from jax._src.mesh import AbstractDevice  # jax has no public name for a device that is not there
from jax.sharding import AbstractMesh, Mesh

from pallas_kernels.dispatch import Implementation, dispatch, target_platform


def refuses(x):
    raise NotImplementedError("it needs a chip")


def fails(x):
    raise ValueError("a bug is no reason to step aside")


TABLE = (
    Implementation("xla", refuses),
    Implementation("xla", lambda x: ("second", x)),
    Implementation("reference", lambda x: ("reference", x), is_automatic=False),
)


def test_the_first_that_serves_is_taken():
    assert dispatch("op", TABLE, "auto", 7) == ("second", 7)
    assert dispatch("op", TABLE, "reference", 7) == ("reference", 7)


def test_an_oracle_is_never_a_silent_fallback():
    with pytest.raises(NotImplementedError, match=r"op: no back end for backend='auto' on cpu. xla: it needs a chip$"):
        dispatch("op", (TABLE[0], TABLE[2]), "auto", 7)


def test_other_errors_pass_through():
    with pytest.raises(ValueError, match="a bug is no reason"):
        dispatch("op", (Implementation("xla", fails), *TABLE), "auto", 7)


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="backend='triton' is unknown"):
        dispatch("op", TABLE, "triton", 7)


def test_the_mesh_in_scope_says_what_is_compiled_for():
    assert target_platform() == "cpu"
    with jax.set_mesh(Mesh(np.array(jax.devices()[:2]), ("tensor",))):
        assert target_platform() == "cpu"
    device = AbstractDevice(device_kind="NVIDIA H100 80GB HBM3", num_cores=None, platform="gpu")
    absent = AbstractMesh((1,), ("tensor",), abstract_device=device)
    with jax.sharding.use_abstract_mesh(absent):
        assert target_platform() == "gpu"
