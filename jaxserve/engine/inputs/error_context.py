"""Host: the error of one request among those of a call says which one it was."""

from collections.abc import Iterator
from contextlib import contextmanager

from jaxserve.core.errors import RequestError


@contextmanager
def named(name: str | None, param: str | None = None) -> Iterator[None]:
    """`RequestError`s from within begin with the name, if there is one, and blame `param` instead of their own."""
    try:
        yield
    except RequestError as error:
        message = str(error) if name is None else f"{name}: {error}"
        raise RequestError(message, param or error.param) from error.__cause__
