"""Host: checks of requests as they are added; what one request asks for is checked where it is made."""

import numpy as np

from jaxserve.core.errors import RequestError
from jaxserve.core.request import Request
from jaxserve.scheduler.state import SchedulerState


def check_ids(state: SchedulerState, requests: list[Request]) -> None:
    """Raise `RequestError` for a request id that is in use."""
    new_ids = set[str]()
    for request in requests:
        if request.request_id in state.requests or request.request_id in new_ids:
            raise RequestError(f"request id {request.request_id!r} is in use; choose another one", "request_id")
        new_ids.add(request.request_id)


def check_adapters(state: SchedulerState, requests: list[Request]) -> None:
    """Raise `RequestError` for an adapter in an engine without any."""
    if state.adapters is None and any(request.adapter is not None for request in requests):
        raise RequestError("this engine serves no adapters; build it with enable_lora=True", "lora_request")


def check_shared_prefix(requests: list[Request], shared_len: int) -> None:
    """Raise `RequestError` unless all prompts have the same first `shared_len` tokens, and the same KV of these."""
    for request in requests:
        if request.adapter != requests[0].adapter:
            raise RequestError(
                f"requests {requests[0].request_id!r} and {request.request_id!r} share tokens but not the adapter, of "
                "which KV depends; add them one by one",
                "lora_request",
            )
        prompt = request.prompt_token_ids
        is_equal = np.array_equal(prompt[:shared_len], requests[0].prompt_token_ids[:shared_len])
        if not is_equal or not 0 < shared_len <= len(prompt):
            raise RequestError(
                f"prompts {requests[0].request_id!r} and {request.request_id!r} do not share {shared_len} tokens",
                "prompt",
            )
