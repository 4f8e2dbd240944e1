"""Host: what one call asks for, checked as a whole: a bad prompt or parameter stops it before anything has begun."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as SequenceOf
from typing import Any

from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.options.scheduling_options import SchedulingOptions
from jaxserve.core.request import Request
from jaxserve.engine.inputs.error_context import named
from jaxserve.engine.inputs.input_processor import InputProcessor
from jaxserve.engine.inputs.prompt import Prompt, prompt_size, read_only_prompt, read_prompt
from jaxserve.engine.outputs.output_processor import OutputProcessor

REQUEST_SIZE = 100  # to make a request takes as long as to read so many characters


def requests_for(
    jobs: OutputProcessor,
    maker: InputProcessor,
    prompts: list[Prompt],
    sampling_params: Any,
    scheduling: Mapping[str, Any] | None = None,
    noun: str = "prompt",
) -> list[tuple[str | None, Request]]:
    """A prompt's text, where it has one, and its request; `jobs` would take all of them now.

    scheduling: fields of `SchedulingOptions`, each one for all or one a prompt. Errors call the prompts `noun` and
    count them from 0.
    """
    arrival_s, several = maker.clock(), len(prompts) > 1
    params, scheduling_options = (
        params_for(sampling_params, len(prompts), noun),
        scheduling_for(scheduling or {}, len(prompts), noun),
    )
    requests = []
    for i, (prompt, ids) in enumerate(zip(prompts, maker.token_ids(prompts), strict=True)):
        with named(f"{noun} {i}" if several else None):
            options = {"cache_salt": prompt.cache_salt, "scheduling": scheduling_options[i], "arrival_s": arrival_s}
            requests.append(maker.make(ids, params[i], i, **options))
    jobs.check(requests)
    maker.count(len(requests))
    return [(prompt.text, request) for prompt, request in zip(prompts, requests, strict=True)]


def read_requests(
    prompts: SequenceOf[Any], maker: InputProcessor, make: Callable[..., Request], check: Callable[[Request], None]
) -> tuple[list[list[int]], list[tuple[str | None, Request]]]:
    """Each prompt's token ids, and its text, where it has one, with the request that `make` makes of it; `check` has
    let all of them pass."""
    several = len(prompts) > 1
    read = [read_prompt(p, f"prompt {i}") if several else read_only_prompt(p) for i, p in enumerate(prompts)]
    token_ids, requests = maker.token_ids(read), []
    for i, (prompt, ids) in enumerate(zip(read, token_ids, strict=True)):
        with named(f"prompt {i}" if several else None):
            request = make(ids, cache_salt=prompt.cache_salt)
            check(request)
        requests.append((prompt.text, request))
    return token_ids, requests


def params_for(sampling_params: Any, count: int, noun: str = "prompt") -> list[SamplingParams]:
    """Parameters for each of `count` prompts from those of all, or from a list of one each."""
    params = SamplingParams() if sampling_params is None else sampling_params
    if isinstance(params, SamplingParams):
        return [params] * count
    if not isinstance(params, list | tuple) or not all(isinstance(p, SamplingParams) for p in params):
        raise RequestError("sampling_params must be a SamplingParams or a list of them", "sampling_params")
    _check_count(params, count, "sampling_params", noun)
    return list(params)


def scheduling_for(options: Mapping[str, Any], count: int, noun: str = "prompt") -> list[SchedulingOptions]:
    """A `SchedulingOptions` for each of `count` prompts; of each option there is one for all, or a list of one each."""
    columns: dict[str, list[Any]] = {}
    for name, value in options.items():
        if isinstance(value, list | tuple):
            _check_count(value, count, name, noun)
        columns[name] = list(value) if isinstance(value, list | tuple) else [value] * count
    scheduling_options = []
    for i in range(count):
        with named(f"{noun} {i}" if count > 1 else None):
            scheduling_options.append(SchedulingOptions(**{name: values[i] for name, values in columns.items()}))
    return scheduling_options


def only_params(sampling_params: Any) -> SamplingParams:
    """Parameters where one prompt is served alone."""
    if isinstance(sampling_params, list | tuple):
        raise RequestError("sampling_params must be one SamplingParams, for there is one prompt", "sampling_params")
    return params_for(sampling_params, 1)[0]


def size_of(prompts: SequenceOf[Any], params: SamplingParams | None = None) -> int:
    """How much there is to read and check: characters, tokens and ids."""
    size = sum(REQUEST_SIZE + prompt_size(prompt) for prompt in prompts)
    if params is not None:
        size += len(params.allowed_token_ids or ()) + sum(map(len, params.bad_words or ()))
    return size


def _check_count(values: list[Any] | tuple[Any, ...], count: int, name: str, noun: str) -> None:
    if len(values) != count:
        raise RequestError(f"{count} {noun}s but {len(values)} {name}: give one, or one a {noun}", name)
