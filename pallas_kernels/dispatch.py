"""Device: back-end names and the one rule that chooses among an op's back ends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

BACKENDS = ("auto", "xla", "reference")


@dataclass(frozen=True)
class Implementation:
    """One way to compute an op. `function` raises NotImplementedError(reason) for arguments that it does not serve."""

    backend: str
    """One of BACKENDS, not "auto"."""
    function: Callable[..., Any]
    is_automatic: bool = True
    """False: taken only when asked for by name (an oracle is right, but too slow to fall back to in silence)."""


def target_platform() -> str:
    """The platform that the computation being traced is for: "cpu", "gpu" or "tpu".

    The mesh in scope says it, so that a program can be compiled for a machine that is not there.
    """
    mesh = jax.sharding.get_abstract_mesh()
    device = None if mesh.empty else mesh.abstract_device
    return jax.default_backend() if device is None else device.platform


def dispatch(op: str, table: Sequence[Implementation], backend: str, *args: Any, **kwargs: Any) -> Any:
    """Calls the first implementation in the table that serves these arguments.

    Raises:
      ValueError: no back end has this name.
      NotImplementedError: every candidate stepped aside; the message holds each one's reason.
    """
    if backend not in BACKENDS:
        raise ValueError(f"{op}: backend={backend!r} is unknown; use one of {', '.join(BACKENDS)}")
    reasons = []
    for entry in table:
        if entry.is_automatic if backend == "auto" else entry.backend == backend:
            try:
                return entry.function(*args, **kwargs)
            except NotImplementedError as error:
                reasons.append(f"{entry.backend}: {error}")
    raise NotImplementedError(
        f"{op}: no back end for backend={backend!r} on {target_platform()}. "
        + ("; ".join(reasons) or "none is registered under this name")
    )
