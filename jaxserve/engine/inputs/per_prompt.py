"""Host: options that a call gives for all prompts, or in a list with one per prompt; errors that name the prompt."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.scheduling_options import SchedulingOptions


@contextmanager
def named(name: str | None, param: str | None = None) -> Generator[None]:
    """Prefix `RequestError`s raised within with `name`, if it is given, and blame `param` instead of their own."""
    try:
        yield
    except RequestError as error:
        message = str(error) if name is None else f"{name}: {error}"
        raise RequestError(message, param or error.param) from error.__cause__


def name_of(index: int, count: int, noun: str) -> str | None:
    """How errors call one of `count` prompts; None for an only one."""
    return f"{noun} {index}" if count > 1 else None


def params_for(sampling_params: Any, count: int, noun: str = "prompt") -> list[SamplingParams]:
    """Sampling parameters for each of `count` prompts, from those for all or a list with one per prompt."""
    params = SamplingParams() if sampling_params is None else sampling_params
    if isinstance(params, SamplingParams):
        return [params] * count
    listed = as_list(params)
    if listed is None or not all(isinstance(each, SamplingParams) for each in listed):
        raise RequestError("sampling_params must be a SamplingParams or a list of them", "sampling_params")
    _check_count(listed, count, "sampling_params", noun)
    return listed


def only_params(sampling_params: Any) -> SamplingParams:
    """Sampling parameters of a call that takes one prompt."""
    if isinstance(sampling_params, list | tuple):
        raise RequestError("sampling_params must be one SamplingParams, for there is one prompt", "sampling_params")
    return params_for(sampling_params, 1)[0]


def scheduling_for(options: Mapping[str, Any], count: int, noun: str = "prompt") -> list[SchedulingOptions]:
    """`SchedulingOptions` for each of `count` prompts; each field is given for all or as a list with one per prompt."""
    columns: dict[str, list[Any]] = {}
    for name, value in options.items():
        listed = as_list(value)
        if listed is not None:
            _check_count(listed, count, name, noun)
        columns[name] = [value] * count if listed is None else listed
    scheduling: list[SchedulingOptions] = []
    for i in range(count):
        with named(name_of(i, count, noun)):
            scheduling.append(SchedulingOptions(**{name: values[i] for name, values in columns.items()}))
    return scheduling


def as_list(value: Any) -> list[Any] | None:
    """The items of a list or tuple; None for any other value."""
    return list(cast("list[Any] | tuple[Any, ...]", value)) if isinstance(value, list | tuple) else None


def _check_count(values: list[Any], count: int, name: str, noun: str) -> None:
    if len(values) != count:
        raise RequestError(f"{count} {noun}s but {len(values)} {name}: give one value, or one per {noun}", name)
