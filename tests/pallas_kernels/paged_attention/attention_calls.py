"""Calls of paged attention as tests and proofs make them: jitted, static options apart, outputs as numpy."""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.paged_attention.api import IMPLEMENTATIONS, paged_attention

BACKENDS = tuple(entry.backend for entry in IMPLEMENTATIONS if entry.backend not in ("mosaic_gpu", "reference"))
"""The back ends that are compared with the reference on everything; `test_attention_gpu` has what GPUs serve."""

STATIC = ("scale", "window", "softcap", "write", "layout", "backend", "block")


class Result(NamedTuple):
    o: np.ndarray
    """float32, which holds every other type's numbers, or the truth's float64."""
    pool: np.ndarray
    """In its own type."""


@cache
def compiled(is_fast: bool, **static: Any):
    # Without LLVM's optimizations a case compiles in half the time; for what does not depend on them.
    options = {"xla_backend_optimization_level": 0} if is_fast else None
    return jax.jit(partial(paged_attention, **static), compiler_options=options)


def attend(arguments: dict[str, Any], *, compile_fast: bool = False, **changes: Any) -> Result:
    o, pool = _call(arguments | changes, compile_fast)
    return Result(np.asarray(o).astype(np.float32), np.asarray(pool))


def truth(arguments: dict[str, Any], *, compile_fast: bool = True) -> Result:
    """The reference in float64 on the same numbers, and the pool that every back end must leave behind."""
    with jax.enable_x64(True):
        is_wide = ("q", "k", "v", "sinks", "k_scale", "v_scale")
        wide = {name: jnp.asarray(arguments[name], jnp.float64) for name in is_wide if arguments[name] is not None}
        o, pool = _call(arguments | wide | {"backend": "reference"}, compile_fast)
        return Result(np.asarray(o), np.asarray(pool))


def _call(arguments: dict[str, Any], compile_fast: bool) -> tuple[jax.Array, jax.Array]:
    static = {name: arguments[name] for name in STATIC if name in arguments}
    arrays = {name: x for name, x in arguments.items() if name not in STATIC}
    return compiled(compile_fast, **static)(**arrays)
