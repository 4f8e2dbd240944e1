"""`CompileClock` counts compilations inside its context, and their wall time once."""

import jax
import jax.numpy as jnp
import pytest
from jax import monitoring

from jaxserve.bench.offline import compile_clock
from jaxserve.bench.offline.compile_clock import CACHE_HIT_EVENT, EVENTS, CompileClock


def compile_something(size: int) -> None:
    jax.jit(lambda x: x * 2).lower(jax.ShapeDtypeStruct((size,), jnp.int32)).compile()


def test_compilations_are_counted_inside_alone():
    compile_something(3)
    with CompileClock() as clock:
        assert (clock.num_compiled, clock.compile_s) == (0, 0.0)
        compile_something(5)
        compile_something(7)
    compile_something(9)
    assert clock.num_compiled == 2
    assert clock.num_cached == 0
    assert 0 < clock.compile_s < clock.wall_s  # wall_s includes tracing and lowering


def test_programs_read_from_the_persistent_cache_are_counted_apart():
    with CompileClock() as clock:
        monitoring.record_event(CACHE_HIT_EVENT)
        monitoring.record_event("/jax/compilation_cache/cache_misses")
    monitoring.record_event(CACHE_HIT_EVENT)
    assert clock.num_cached == 1


def test_nested_and_parallel_spans_are_not_counted_twice(monkeypatch):
    with CompileClock() as clock:
        for stop_s, duration_s in ((10.0, 2.0), (11.0, 4.0), (12.0, 1.5), (20.0, 3.0)):
            monkeypatch.setattr(compile_clock.time, "monotonic", lambda now=stop_s: now)
            monitoring.record_event_duration_secs(EVENTS + "jaxpr_trace_duration", duration_s)
    assert clock.wall_s == pytest.approx(12 - 7 + 3)
    assert clock.num_compiled == 0
