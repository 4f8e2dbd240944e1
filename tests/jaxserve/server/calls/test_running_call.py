"""What has ended a text with an error decides the answer to the client."""

import asyncio
from typing import Any

import pytest

from jaxserve.core.options.lora_request import AdapterFailure
from jaxserve.core.options.no_token_left import NoTokenLeft
from jaxserve.core.outputs import CompletionOutput, RequestOutput
from jaxserve.server.calls.running_call import RunningCall
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.monitoring.access_log import AccessRecord


class OneResult:
    """In place of a `ResultStream`."""

    def __init__(self, output: RequestOutput):
        self.output, self.has_more = output, True

    async def next_indexed(self) -> tuple[int, RequestOutput]:
        self.has_more = False
        return 0, self.output


@pytest.mark.parametrize(
    ("stop_reason", "expected"),
    [
        (AdapterFailure("adapter 'a' cannot be read: no such file"), (400, "adapter_failed", "model")),
        (NoTokenLeft(["allowed_token_ids", "bad_words"]), (400, "no_token_left", "allowed_token_ids")),
        (NoTokenLeft(["bad_words"]), (400, "no_token_left", "bad_words")),
        ("the grammar allows no token here", (400, "grammar_failed", "guided")),
        (None, (500, "not_finite", None)),
    ],
)
def test_the_error_says_what_has_failed(stop_reason: Any, expected: tuple[int, str, str | None]):
    completion = CompletionOutput(0, "", [], finish_reason="error", stop_reason=stop_reason)
    results: Any = OneResult(RequestOutput("r", "p", [1], outputs=[completion], finished=True))
    with pytest.raises(ApiError) as failed:
        asyncio.run(RunningCall(results, "guided").outputs(AccessRecord("r", "/v1/completions")))
    error = failed.value
    assert (error.status, error.code, error.param) == expected
    if stop_reason is not None:
        assert str(stop_reason) in str(error)
