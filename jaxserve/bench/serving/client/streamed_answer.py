"""Host: `StreamedAnswer`, a streamed answer of `/v1/completions` or `/v1/chat/completions`, chunk by chunk."""

import json
from collections.abc import Callable
from typing import Any

from jaxserve.bench.serving.client.reply import Failure, RequestResult

DONE = b"[DONE]"
# Where a chat's delta has text: OpenAI's name, and those that reasoning has.
DELTA_TEXTS = ("content", "reasoning_content", "reasoning")
MAX_TOKENS = 1 << 40  # of an answer; a server that counts more does not count
UNFINISHED = ("abort", "error", "timeout")  # reasons to end that are no ends


class StreamedAnswer:
    """Grows by `take`; `reply` tells all of it once the stream has ended.

    A chunk holds tokens if it has text, or neither names a role nor ends the answer: some tokens add no text yet.
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
        """An event's data, and when it came."""
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
            choice = choices[0]
            delta = choice.get("delta") or {}
            text = choice.get("text") or next((delta[name] for name in DELTA_TEXTS if delta.get(name)), "")
            reason = choice.get("finish_reason")
            if text or (reason is None and not delta.get("role")):
                self._token_s.append(now_s)
                self._text += text
            if reason in UNFINISHED:
                self._fail("unfinished", f"finish_reason {reason!r}")
            self._is_whole |= reason is not None
            self._end_s = now_s
        if usage := chunk.get("usage"):
            self._usage = {name: _count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens")}

    def _fail(self, kind: str, message: str) -> None:
        """The first failure is the one that counts."""
        self._failure = self._failure or Failure.of(kind, message)

    def reply(self, now_s: float, failure: Failure | None, count_tokens: Callable[[str], int] | None) -> RequestResult:
        """failure: of the request as a whole. count_tokens: of a text, where the server does not tell."""
        input_len, output_len = (self._usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
        if output_len is None and count_tokens is not None:
            output_len = count_tokens(self._text.encode("utf-8", "replace").decode())  # JSON may hold half characters
        failure = failure or self._failure
        if failure is None and not self._is_whole:
            failure = Failure.of("stream cut short", "it ended without finish_reason and [DONE]")
        if failure is None and output_len is None:
            failure = Failure.of("no usage", "the stream does not tell its tokens: give --tokenizer, to count them")
        if failure is not None or output_len is None:
            return RequestResult(self.sent_s, self._token_s, now_s, input_len, 0, failure)
        # Of an answer without any text one knows only when it ended.
        token_s = self._token_s or [self._end_s] * min(1, output_len)
        return RequestResult(self.sent_s, token_s, self._end_s, input_len, output_len)


def error_message(body: Any) -> str | None:
    """What is wrong, as OpenAI, SGLang or llama.cpp say it; None where nothing is."""
    if not isinstance(body, dict):
        return None
    error = body.get("error", body if body.get("object") == "error" else None)
    if error is None:
        return None
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS
    return value if is_count else None
