"""Device: names of back ends, the rule that selects one for an op, and interpretation of kernels on other devices."""

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import jax

BACKENDS = ("auto", "mosaic_tpu", "mosaic_gpu", "xla", "invariant", "reference")

HOPPER = ("H100", "H200", "H800", "H20", "GH200")
"""Parts of the device names of GPUs with compute capability 9.0."""

_interpreter: ContextVar[Any] = ContextVar("interpreter", default=True)


@dataclass(frozen=True)
class Implementation:
    """One implementation of an op. `function` raises NotImplementedError(reason) for arguments outside its support."""

    backend: str
    """One of BACKENDS, not "auto"."""
    function: Callable[..., Any]
    platforms: tuple[str, ...] | None = None
    """Platforms that it is made for; None: all. Selected by name, it runs elsewhere too, interpreted."""
    is_automatic: bool = True
    """False: used only when selected by name (a reference is correct, but too slow as a silent fallback)."""


def imported_on_demand(module: str, name: str) -> Callable[..., Any]:
    """A function whose module is imported by the first call: importing Pallas for GPUs takes 0.6 s."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(import_module(module), name)(*args, **kwargs)

    return call


def target_platform() -> str:
    """The platform that the computation being traced is for: "cpu", "gpu" or "tpu".

    It is that of the mesh in scope, so that a program can be compiled for a device that this machine lacks.
    """
    mesh = jax.sharding.get_abstract_mesh()
    device = None if mesh.empty else mesh.abstract_device
    return jax.default_backend() if device is None else device.platform


def target_device_kind() -> str:
    """The device kind that the computation being traced is for, e.g. "TPU v6 lite"."""
    mesh = jax.sharding.get_abstract_mesh()
    device = None if mesh.empty else mesh.abstract_device
    if device is not None:
        return device.device_kind
    return jax.devices()[0].device_kind  # pyright: ignore[reportUnknownVariableType]


def interpretation() -> Any:
    """The `interpret` argument of a TPU kernel's `pallas_call`: False where the target is a TPU."""
    return False if target_platform() == "tpu" else _interpreter.get()


def gpu_interpretation() -> Any:
    """The `interpret` argument of a GPU kernel's `plgpu.kernel`: None where the target is a GPU."""
    if target_platform() == "gpu":
        return None
    from jax.experimental.pallas import mosaic_gpu

    interpreter = _interpreter.get()
    return interpreter if isinstance(interpreter, mosaic_gpu.InterpretGPUParams) else mosaic_gpu.InterpretGPUParams()


def require_hopper() -> None:
    """Raises NotImplementedError where the target is a GPU of another generation than Hopper."""
    if target_platform() == "gpu" and not any(name in target_device_kind() for name in HOPPER):
        raise NotImplementedError(f"its kernels are for Hopper ({', '.join(HOPPER)}), not for {target_device_kind()}")


def dividing_axes() -> tuple[str, ...]:
    """Of the mesh in scope, the axes over which arrays may be divided: in `jax.shard_map` those that it leaves."""
    mesh = jax.sharding.get_abstract_mesh()
    return tuple(name for name in mesh.axis_names if name not in mesh.manual_axes)


def num_dividing_devices() -> int:
    """Of `dividing_axes`."""
    mesh = jax.sharding.get_abstract_mesh()
    return math.prod(mesh.shape[name] for name in dividing_axes())


def require_one_device() -> None:
    """Raises NotImplementedError where arrays may be divided over several devices."""
    if (count := num_dividing_devices()) > 1:
        raise NotImplementedError(f"it serves the arrays of one device, not of {count}")


@contextmanager
def interpreted_by(interpreter: Any) -> Generator[None]:
    """In this context, kernels traced for other targets than theirs run under this interpreter."""
    token = _interpreter.set(interpreter)
    try:
        yield
    finally:
        _interpreter.reset(token)


def dispatch(op: str, table: Sequence[Implementation], backend: str, *args: Any, **kwargs: Any) -> Any:
    """Calls the first implementation in the table that serves these arguments.

    Raises:
      ValueError: no back end has this name.
      NotImplementedError: no candidate serves these arguments; the message holds each one's reason.
    """
    if backend not in BACKENDS:
        raise ValueError(f"{op}: backend={backend!r} is unknown; use one of {', '.join(BACKENDS)}")
    reasons: list[str] = []
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
