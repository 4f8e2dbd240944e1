"""`jax.checkpoint`, which keeps the type of its function."""

from collections.abc import Callable
from typing import Any

def checkpoint[F: Callable[..., Any]](fun: F, *, prevent_cse: bool = True, policy: Any = None) -> F: ...
def __getattr__(name: str) -> Any: ...
