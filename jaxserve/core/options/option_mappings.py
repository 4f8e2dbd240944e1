"""Host: engine options that are mappings, read into a dataclass of their own."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, cast

from jaxserve.core.errors import ConfigError


def read_mapping[T](kind: type[T], value: Any, param: str) -> T | None:
    """The `kind` of a mapping, or None; raises ConfigError that names what is wrong. param: the engine's option."""
    if value is None or isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise option_error(param, f"{value!r} must map names of options to values")
    given = cast(Mapping[Any, Any], value)
    known = fields(cast(Any, kind))
    names = [field.name for field in known]
    for name in given:
        if name not in names:
            raise option_error(param, f"unknown option {name!r}; known are {', '.join(names)}")
    for field in known:
        if field.default is MISSING and field.name not in given:
            raise option_error(param, f"{field.name} is missing")
    return kind(**given)


def check_integer(param: str, name: str, value: Any, least: int, most: int | None = None) -> None:
    """Raise ConfigError unless a value of the mapping is an integer between the limits."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if not is_integer or value < least or (most is not None and value > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise option_error(param, f"{name}={value!r} must be an integer {limits}")


def option_error(param: str, message: str) -> ConfigError:
    """The error of an option that is a mapping."""
    return ConfigError(f"{param}: {message}", param=param)
