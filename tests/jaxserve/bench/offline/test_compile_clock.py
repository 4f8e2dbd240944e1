"""A compilation is counted where it happens, and nowhere else."""

import jax
import jax.numpy as jnp

from jaxserve.bench.offline.compile_clock import CompileClock


def compile_something(size: int) -> None:
    jax.jit(lambda x: x * 2).lower(jax.ShapeDtypeStruct((size,), jnp.int32)).compile()


def test_compilations_are_counted_inside_alone():
    compile_something(3)
    with CompileClock() as clock:
        assert (clock.num_compiled, clock.seconds) == (0, 0.0)
        compile_something(5)
        compile_something(7)
    compile_something(9)
    assert clock.num_compiled == 2
    assert clock.seconds > 0
