"""Device: `Program`, a function that an engine compiles, and the shapes of its arguments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh

from jaxserve.core.buckets import Bucket
from jaxserve.runner.programs.compiler_options import compiler_options


@dataclass(frozen=True, slots=True)
class Program:
    """A function and the shapes of its arguments; the argument at index `state` is donated and returned first.

    bucket: of a step; None of other programs. num_heads: rows that a program which is no step multiplies by the head.
    """

    name: str
    mesh: Mesh
    function: Callable[..., Any]
    args: tuple[Any, ...]
    state: int
    out_shardings: Any
    bucket: Bucket | None = None
    num_heads: int = 0

    @property
    def jitted(self) -> Any:
        options = compiler_options(self.mesh)
        return jax.jit(
            self.function, donate_argnums=(self.state,), out_shardings=self.out_shardings, compiler_options=options
        )

    def lower(self) -> jax.stages.Lowered:
        with jax.set_mesh(self.mesh):  # kernels read the target device from the mesh
            return self.jitted.lower(*self.args)

    def compile(self) -> jax.stages.Compiled:
        return self.lower().compile()
