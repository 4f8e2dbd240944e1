"""The conditions that conftest.py sets hold in every test process; no other test would fail without them."""

import importlib

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import Array, Float, TypeCheckError, jaxtyped

from tests.repository.modules import names_of
from tests.support import shape_checks


def test_there_are_four_devices():
    assert jax.device_count() >= 4 or jax.default_backend() != "cpu"


def test_dtypes_do_not_promote_silently():
    with pytest.raises(ValueError, match="dtype promotion"):
        jnp.ones(2, jnp.bfloat16) + jnp.ones(2, jnp.float32)


def test_ranks_do_not_promote_silently():
    with pytest.raises(ValueError, match="rank"):
        jnp.ones((2, 3)) + jnp.ones(3)


@pytest.mark.parametrize("name", names_of("Device"))
def test_shapes_are_checked_in_every_device_module(name):
    assert "jaxtyping" in type(importlib.import_module(name).__spec__.loader).__module__


def test_functions_defined_anew_are_checked_each_time():
    def make(hint):
        @jaxtyped(typechecker=shape_checks.check)
        def square(x: hint) -> hint:
            return x * x

        return square

    for length in (2, 3, 2):
        square = make(Float[Array, f"{length}"])
        square(jnp.ones(length))
        with pytest.raises(TypeCheckError):
            square(jnp.ones(4))
