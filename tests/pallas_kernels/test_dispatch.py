"""`dispatch` tries the back ends in order; an error names those that refuse, with their reasons."""

import jax
import numpy as np
import pytest
from jax._src.mesh import AbstractDevice  # jax has no public name for a device that is not there
from jax.sharding import AbstractMesh, Mesh

from pallas_kernels.dispatch import (
    BACKENDS,
    Implementation,
    dispatch,
    interpretation,
    interpreted_by,
    target_device_kind,
    target_platform,
)


def refuses(x):
    raise NotImplementedError("it needs a chip")


def fails(x):
    raise ValueError("a bug is no reason to refuse")


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
    with jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("tensor",), abstract_device=device)):
        assert target_platform() == "gpu"
        assert target_device_kind() == "NVIDIA H100 80GB HBM3"
    assert target_device_kind() == jax.devices()[0].device_kind


V6E = AbstractDevice(device_kind="TPU v6 lite", num_cores=1, platform="tpu")
ON_V6E = AbstractMesh((1,), ("tensor",), abstract_device=V6E)
KERNELS = (Implementation("mosaic_tpu", lambda x: ("kernel", x), platforms=("tpu",)), *TABLE)


def test_a_kernel_is_taken_on_its_platform_and_elsewhere_by_name():
    assert dispatch("op", KERNELS, "auto", 7) == ("second", 7)
    assert dispatch("op", KERNELS, "mosaic_tpu", 7) == ("kernel", 7)
    with jax.sharding.use_abstract_mesh(ON_V6E):
        assert dispatch("op", KERNELS, "auto", 7) == ("kernel", 7)


def test_every_candidate_gives_its_reason():
    reasons = r"on cpu. mosaic_tpu: it is made for tpu; xla: it needs a chip$"
    with pytest.raises(NotImplementedError, match=reasons):
        dispatch("op", KERNELS[:2], "auto", 7)


def test_kernels_are_interpreted_where_their_chip_is_not():
    assert interpretation() is True
    with interpreted_by("a race detector"):
        assert interpretation() == "a race detector"
        with jax.sharding.use_abstract_mesh(ON_V6E):
            assert interpretation() is False
    assert interpretation() is True


def test_back_ends_have_names_of_their_own():
    assert len(set(BACKENDS)) == len(BACKENDS)
