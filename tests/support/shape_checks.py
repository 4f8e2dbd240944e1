"""The type checker of jaxtyping's import hook, which `tests/conftest.py` installs."""

from collections.abc import Callable
from typing import Any

from beartype import beartype

_checkers: dict[Any, Callable[..., Any]] = {}


def check(signature: Callable[..., Any]) -> Callable[..., Any]:
    """`beartype`, run once per signature.

    `signature` is an empty function with the annotations of a function of ours. Functions inside of functions are defined
    anew in every trace, and jaxtyping decorates them each time: without the dictionary, 5 % of the time of all tests.
    """
    key = (
        signature.__module__,
        signature.__qualname__,
        signature.__code__,
        tuple(signature.__annotations__.items()),
        signature.__defaults__,
        tuple((signature.__kwdefaults__ or {}).items()),
    )
    if key not in _checkers:
        _checkers[key] = beartype(signature)
    return _checkers[key]
