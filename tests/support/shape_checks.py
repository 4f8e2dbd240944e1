"""The type checker of jaxtyping's import hook, which `tests/conftest.py` installs."""

from collections.abc import Callable
from typing import Any

from beartype import beartype

_checkers: dict[Any, Callable[..., Any]] = {}


def check(signature: Callable[..., Any]) -> Callable[..., Any]:
    """`beartype`, run once per signature without defaults.

    `signature` is an empty function with the annotations of a function of ours. Functions inside of functions are
    defined anew in every trace, and jaxtyping decorates them each time: that took 5 % of the time of tests of engines.
    """
    if signature.__defaults__ or signature.__kwdefaults__:  # these may be values of one trace
        return beartype(signature)
    annotations = tuple(signature.__annotations__.items())
    key = (signature.__module__, signature.__qualname__, signature.__code__, annotations)
    if key not in _checkers:
        _checkers[key] = beartype(signature)
    return _checkers[key]
