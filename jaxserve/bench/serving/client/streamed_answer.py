"""Host: `StreamedAnswer`: reads a streamed answer of `/v1/completions` or `/v1/chat/completions`, chunk by chunk."""

import json
from collections.abc import Callable
from typing import Any, cast

from jaxserve.bench.serving.client.request_result import Failure, RequestResult

DONE = b"[DONE]"
# Fields of a chat's delta that hold text: OpenAI's, and those of reasoning.
DELTA_TEXTS = ("content", "reasoning_content", "reasoning")
MAX_TOKENS = 1 << 40  # of an answer; a larger count is invalid
UNFINISHED = ("abort", "error", "timeout")  # finish or stop reasons of incomplete answers


class StreamedAnswer:
    """Collects events with `take`; `result` returns the `RequestResult` when the stream has ended.

    A chunk counts as one with tokens if it has text, or if it has neither a role nor a finish reason: some tokens add
    no text yet.
    """

    def __init__(self, sent_s: float) -> None:
        self.sent_s = sent_s
        self._text = ""
        self._token_s: list[float] = []
        self._end_s = sent_s
        self._usage: dict[str, int | None] = {}
        self._is_whole = False
        self._failure: Failure | None = None

    def take(self, event: bytes, now_s: float) -> None:
        """Takes the data of an event and its arrival time."""
        if event == DONE:
            self._is_whole = True
            return
        try:
            chunk = json.loads(event)
            self._read(chunk, now_s)
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
            self._fail("not a chunk", event.decode("utf-8", "replace"))

    def _read(self, chunk: dict[str, Any], now_s: float) -> None:
        if (error := error_message(chunk)) is not None:
            self._fail("error in the stream", error)
            return
        if choices := chunk.get("choices"):
            choice: dict[str, Any] = choices[0]
            delta: dict[str, Any] = choice.get("delta") or {}
            text: str = choice.get("text") or next((delta[name] for name in DELTA_TEXTS if delta.get(name)), "")
            reason: Any = choice.get("finish_reason")
            if text or (reason is None and not delta.get("role")):
                self._token_s.append(now_s)
                self._text += text
            why: Any = choice.get("stop_reason") if reason == "length" else reason
            if why in UNFINISHED:
                self._fail("unfinished", f"the server ended it: {why!r}")
            self._is_whole |= reason is not None
            self._end_s = now_s
        if usage := chunk.get("usage"):
            self._usage = {name: _count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens")}

    def _fail(self, kind: str, message: str) -> None:
        """Records a failure; the first one is kept."""
        self._failure = self._failure or Failure.of(kind, message)

    def result(self, now_s: float, failure: Failure | None, count_tokens: Callable[[str], int] | None) -> RequestResult:
        """failure: of the whole request. count_tokens: counts the text's tokens where the server reports no usage."""
        input_len, output_len = (self._usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
        if output_len is None and count_tokens is not None:
            output_len = count_tokens(self._text.encode("utf-8", "replace").decode())  # JSON may hold half characters
        failure = failure or self._failure
        if failure is None and not self._is_whole:
            failure = Failure.of("stream cut short", "it ended without finish_reason and [DONE]")
        if failure is None and output_len is None:
            failure = Failure.of("no usage", "the stream reports no token counts: add --tokenizer to count them")
        if failure is not None or output_len is None:
            return RequestResult(self.sent_s, self._token_s, now_s, input_len, 0, failure)
        # An answer without any text has only its end as a time.
        token_s = self._token_s or [self._end_s] * min(1, output_len)
        return RequestResult(self.sent_s, token_s, self._end_s, input_len, output_len)


def error_message(body: Any) -> str | None:
    """The error message in the form of OpenAI, SGLang or llama.cpp; None where the body is not an error."""
    if not isinstance(body, dict):
        return None
    fields = cast(dict[str, Any], body)
    error: Any = fields.get("error", fields if fields.get("object") == "error" else None)
    if isinstance(error, dict):
        details = cast(dict[str, Any], error)
        return str(details.get("message") or details)
    return None if error is None else str(error)


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS
    return value if is_count else None
