"""Host: `RequestChecks`: whether requests can be added; a check that fails has changed nothing."""

import numpy as np

from jaxserve.core.errors import RequestError
from jaxserve.core.options.scheduling_options import DEFAULT_SCHEDULING
from jaxserve.core.request import Request
from jaxserve.scheduler.queue_limits import QueueLimits, QueueLoad, queue_cost
from jaxserve.scheduler.state import SchedulerState


class RequestChecks:
    """Checks against a scheduler's limits, policy and queue. queue_limits: may be replaced at any time."""

    def __init__(self, state: SchedulerState, queue_limits: QueueLimits):
        self._state, self.queue_limits = state, queue_limits

    def check(self, requests: list[Request]) -> None:
        """Raise `RequestError`, or its subclass `QueueFullError`, unless all of the requests can be added now."""
        new_ids = set[str]()
        for request in requests:
            if request.request_id in self._state.requests or request.request_id in new_ids:
                raise RequestError(f"request id {request.request_id!r} is in use; choose another one", "request_id")
            new_ids.add(request.request_id)
            self.check_fields(request)
        self.queue_limits.check(QueueLoad.of(self._state), *queue_cost(requests))

    def check_fields(self, request: Request) -> None:
        """Raise `RequestError` for a request that this engine can never serve; may be called from any thread."""
        max_len, prompt = self._state.limits.max_model_len, request.prompt_token_ids
        if not 0 < len(prompt) < max_len + (request.max_tokens == 0):
            most = f"at most the {max_len}" if request.max_tokens == 0 else f"fewer than the {max_len}"
            raise RequestError(
                f"the prompt has {len(prompt)} tokens; it must have at least 1, and {most} that prompt and output "
                "may have together",
                "prompt",
            )
        for name in ("priority", "tenant"):
            value = getattr(request.scheduling, name)
            if value != getattr(DEFAULT_SCHEDULING, name) and name not in self._state.policy.fields:
                raise RequestError(
                    f"{name}={value!r} means nothing to the scheduling_policy of this engine: leave it out, or "
                    "build the engine with another policy",
                    name,
                )


def check_shared_prefix(requests: list[Request], shared_len: int) -> None:
    """Raise `RequestError` unless all prompts have the same first `shared_len` tokens."""
    for request in requests:
        prompt = request.prompt_token_ids
        is_equal = np.array_equal(prompt[:shared_len], requests[0].prompt_token_ids[:shared_len])
        if not is_equal or not 0 < shared_len <= len(prompt):
            raise RequestError(
                f"prompts {requests[0].request_id!r} and {request.request_id!r} do not share {shared_len} tokens",
                "prompt",
            )
