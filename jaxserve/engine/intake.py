"""Host: what one call asks for, checked as a whole: a bad prompt or parameter stops it before anything has begun."""

from typing import Any

from jaxserve.core.errors import RequestError
from jaxserve.core.request import Request
from jaxserve.core.sampling_params import SamplingParams
from jaxserve.engine.one_of_many import named
from jaxserve.engine.prompts import Prompt
from jaxserve.engine.requests import RequestMaker


def requests_for(
    maker: RequestMaker, prompts: list[Prompt], sampling_params: Any, noun: str = "prompt"
) -> list[tuple[str | None, Request]]:
    """A prompt's text, where it has one, and its request. Errors call the prompts `noun` and count them from 0."""
    params = params_for(sampling_params, len(prompts), noun)
    requests = []
    for i, (prompt, ids, p) in enumerate(zip(prompts, maker.token_ids(prompts), params, strict=True)):
        with named(f"{noun} {i}" if len(prompts) > 1 else None):
            requests.append((prompt.text, maker.make(ids, p, place=i, cache_salt=prompt.cache_salt)))
    maker.count(len(requests))
    return requests


def params_for(sampling_params: Any, count: int, noun: str = "prompt") -> list[SamplingParams]:
    """Parameters for each of `count` prompts from those of all, or from a list of one each."""
    params = SamplingParams() if sampling_params is None else sampling_params
    if isinstance(params, SamplingParams):
        return [params] * count
    if not isinstance(params, list | tuple) or not all(isinstance(p, SamplingParams) for p in params):
        raise RequestError("sampling_params must be a SamplingParams or a list of them", "sampling_params")
    if len(params) != count:
        raise RequestError(
            f"{count} {noun}s but {len(params)} sampling_params: give one, or one a {noun}", "sampling_params"
        )
    return list(params)


def only_params(sampling_params: Any) -> SamplingParams:
    """Parameters where one prompt is served alone."""
    if isinstance(sampling_params, list | tuple):
        raise RequestError("sampling_params must be one SamplingParams, for there is one prompt", "sampling_params")
    return params_for(sampling_params, 1)[0]
