"""Device: back-end names, the one rule that chooses among an op's back ends, and how kernels run where no chip is."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import jax

BACKENDS = ("auto", "mosaic_tpu", "mosaic_gpu", "xla", "invariant", "reference")

HOPPER = ("H100", "H200", "H800", "H20", "GH200")
"""What the names of GPUs with compute capability 9.0 hold."""

_interpreter: ContextVar[Any] = ContextVar("interpreter", default=True)


@dataclass(frozen=True)
class Implementation:
    """One way to compute an op. `function` raises NotImplementedError(reason) for arguments that it does not serve."""

    backend: str
    """One of BACKENDS, not "auto"."""
    function: Callable[..., Any]
    platforms: tuple[str, ...] | None = None
    """Platforms that it is made for; None: all. Asked for by name it runs elsewhere too, interpreted."""
    is_automatic: bool = True
    """False: taken only when asked for by name (an oracle is right, but too slow to fall back to in silence)."""


def imported_on_demand(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is imported by the first call: Pallas' GPU half takes 0.6 s, which others need not
    wait for."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(import_module(module), name)(*args, **kwargs)

    return call


def target_platform() -> str:
    """The platform that the computation being traced is for: "cpu", "gpu" or "tpu".

    The mesh in scope says it, so that a program can be compiled for a machine that is not there.
    """
    mesh = jax.sharding.get_abstract_mesh()
    device = None if mesh.empty else mesh.abstract_device
    return jax.default_backend() if device is None else device.platform


def target_device_kind() -> str:
    """The model of device that is traced for, as "TPU v6 lite"."""
    mesh = jax.sharding.get_abstract_mesh()
    device = None if mesh.empty else mesh.abstract_device
    return jax.devices()[0].device_kind if device is None else device.device_kind


def interpretation() -> Any:
    """What a TPU kernel passes to `pallas_call` as `interpret`: False where the target is a TPU."""
    return False if target_platform() == "tpu" else _interpreter.get()


def gpu_interpretation() -> Any:
    """What a GPU kernel passes to `plgpu.kernel` as `interpret`: None where the target is a GPU."""
    if target_platform() == "gpu":
        return None
    from jax.experimental.pallas import mosaic_gpu

    interpreter = _interpreter.get()
    return interpreter if isinstance(interpreter, mosaic_gpu.InterpretGPUParams) else mosaic_gpu.InterpretGPUParams()


def require_hopper() -> None:
    """Raises NotImplementedError where the target is a GPU of another generation than the kernels are made for."""
    if target_platform() == "gpu" and not any(name in target_device_kind() for name in HOPPER):
        raise NotImplementedError(f"its kernels are for Hopper ({', '.join(HOPPER)}), not for {target_device_kind()}")


@contextmanager
def interpreted_by(interpreter: Any) -> Iterator[None]:
    """Within it, kernels traced for other targets than theirs run under this interpreter (Pallas' generic one else)."""
    token = _interpreter.set(interpreter)
    try:
        yield
    finally:
        _interpreter.reset(token)


def dispatch(op: str, table: Sequence[Implementation], backend: str, *args: Any, **kwargs: Any) -> Any:
    """Calls the first implementation in the table that serves these arguments.

    Raises:
      ValueError: no back end has this name.
      NotImplementedError: every candidate stepped aside; the message holds each one's reason.
    """
    if backend not in BACKENDS:
        raise ValueError(f"{op}: backend={backend!r} is unknown; use one of {', '.join(BACKENDS)}")
    reasons = []
    target = target_platform()
    for entry in table:
        if entry.is_automatic if backend == "auto" else entry.backend == backend:
            if backend == "auto" and entry.platforms is not None and target not in entry.platforms:
                reasons.append(f"{entry.backend}: it is made for {' and '.join(entry.platforms)}")
                continue
            try:
                return entry.function(*args, **kwargs)
            except NotImplementedError as error:
                reasons.append(f"{entry.backend}: {error}")
    raise NotImplementedError(
        f"{op}: no back end for backend={backend!r} on {target}. "
        + ("; ".join(reasons) or "none is registered under this name")
    )
