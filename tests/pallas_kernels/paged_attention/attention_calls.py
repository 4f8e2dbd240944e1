"""Calls of paged attention as tests make them: jitted, static options apart, outputs as float32 numpy."""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np

from pallas_kernels.paged_attention.api import paged_attention

STATIC = ("scale", "window", "softcap", "write", "backend", "block")


class Result(NamedTuple):
    o: np.ndarray
    pool: np.ndarray


@cache
def compiled(is_fast: bool, **static: Any):
    # Without LLVM's optimizations a case compiles in half the time; for what does not depend on them.
    options = {"xla_backend_optimization_level": 0} if is_fast else None
    return jax.jit(partial(paged_attention, **static), compiler_options=options)


def attend(arguments: dict[str, Any], *, compile_fast: bool = False, **changes: Any) -> Result:
    arguments = arguments | changes
    static = {name: arguments.pop(name) for name in STATIC if name in arguments}
    return Result(*(np.asarray(x).astype(np.float32) for x in compiled(compile_fast, **static)(**arguments)))
