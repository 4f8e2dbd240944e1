"""Calls of paged attention for tests and proofs: jitted, with a static spec, outputs as numpy arrays."""

from dataclasses import fields, replace
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pallas_kernels.paged_attention.api import IMPLEMENTATIONS, paged_attention
from pallas_kernels.paged_attention.attention_spec import AttentionSpec

BACKENDS = tuple(entry.backend for entry in IMPLEMENTATIONS if entry.backend not in ("mosaic_gpu", "reference"))
"""The back ends that are compared with the reference on everything; `test_attention_gpu` has what GPUs serve."""

FIELDS = {field.name for field in fields(AttentionSpec)}


class Result(NamedTuple):
    o: np.ndarray
    """float32, which holds every other type's numbers, or the truth's float64."""
    pool: np.ndarray
    """In its own type."""


@cache
def compiled(is_fast: bool, spec: AttentionSpec):
    # Without LLVM's optimizations a case compiles in half the time; for what does not depend on them.
    options = {"xla_backend_optimization_level": 0} if is_fast else None
    return jax.jit(partial(paged_attention, spec=spec), compiler_options=options)


def changed(arguments: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """`arguments` with other arrays, and with other values in the fields of its spec."""
    of_spec = {name: changes.pop(name) for name in FIELDS & changes.keys()}
    return arguments | changes | {"spec": replace(arguments["spec"], **of_spec)}


def attend(arguments: dict[str, Any], *, compile_fast: bool = False, **changes: Any) -> Result:
    o, pool = _call(changed(arguments, **changes), compile_fast)
    return Result(np.asarray(o).astype(np.float32), np.asarray(pool))


def truth(arguments: dict[str, Any], *, compile_fast: bool = True) -> Result:
    """The reference in float64 on the same numbers, and the pool that every back end must leave behind."""
    with jax.enable_x64(True):
        is_wide = ("q", "k", "v", "sinks", "k_scale", "v_scale")
        wide = {name: jnp.asarray(arguments[name], jnp.float64) for name in is_wide if arguments[name] is not None}
        o, pool = _call(changed(arguments, **wide, backend="reference"), compile_fast)
        return Result(np.asarray(o), np.asarray(pool))


def _call(arguments: dict[str, Any], compile_fast: bool) -> tuple[jax.Array, jax.Array]:
    arrays = dict(arguments)
    return compiled(compile_fast, arrays.pop("spec"))(**arrays)
