"""Host: `GeneratedResponse`: a response of /v1/responses from the engine's output, whole or as events."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jaxserve.core.outputs import CompletionOutput, RequestOutput
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.http.sse_response import sse_event
from jaxserve.server.openai.responses.envelope import Usage
from jaxserve.server.openai.responses.openai_logprobs import TokenTexts, chat_logprobs
from jaxserve.server.openai.responses.reasoning_tokens import ReasoningTokens
from jaxserve.server.openai.responses_api.output_items import OutputItems
from jaxserve.server.openai.responses_api.response_head import ResponseHead, usage_json
from jaxserve.text.parsing.answer_events import AnswerEvent, CallArguments, CallStart, Content, Reasoning
from jaxserve.text.parsing.answer_format import AnswerFormat

Json = dict[str, Any]
# OpenAI has no reason for a deadline or a full context, and strict clients refuse others.
INCOMPLETE = {"length": "max_output_tokens", "timeout": "max_output_tokens"}


class GeneratedResponse:
    """num_top: candidates per token in log-probabilities, None without those. answers: divides the text; where it
    divides anything there are no log-probabilities. reasoning_tokens: counts them; None: there are none. keep: called
    with the finished response.

    A whole response is made of the same pieces as a streamed one: one piece.
    """

    def __init__(
        self,
        head: ResponseHead,
        texts: TokenTexts,
        num_top: int | None,
        answers: AnswerFormat,
        reasoning_tokens: ReasoningTokens | None,
        keep: Callable[[Json], None] = lambda _: None,
    ):
        assert num_top is None or answers.is_plain
        self.usage = Usage(1)
        self._head, self._texts, self._num_top, self._keep = head, texts, num_top, keep
        self._parser = None if answers.is_plain else answers.parser()
        self._reasoning_tokens = reasoning_tokens
        self._output = OutputItems(head.response_id.partition("_")[2])
        self._finish_reason: str | None = None
        self._num_events = 0

    def whole(self, outputs: list[RequestOutput]) -> Json:
        (output,) = outputs
        for _ in self._pieces(output):
            pass
        for _ in self._output.end(self._status):
            pass
        return self._finished()

    def first(self) -> Iterable[bytes]:
        for name in ("created", "in_progress"):
            yield self._event({"type": f"response.{name}", "response": self._head.as_json("in_progress", [])})

    def part(self, prompt_index: int, output: RequestOutput) -> Iterable[bytes]:
        return map(self._event, self._pieces(output))

    def last(self) -> Iterable[bytes]:
        yield from map(self._event, self._output.end(self._status))
        yield self._event({"type": f"response.{self._status}", "response": self._finished()})

    def failed(self, error: ApiError) -> Iterable[bytes]:
        """The response with what was finished; of all errors that OpenAI's clients know, only `server_error` fits."""
        fields = {"code": "server_error", "message": error.body()["error"]["message"]}
        response = self._head.as_json("failed", self._output.items, usage=self._usage, error=fields)
        yield self._event({"type": "response.failed", "response": response})

    def _pieces(self, output: RequestOutput) -> Iterator[Json]:
        """The events of a part of the output."""
        self.usage.add(0, output)
        for completion in output.outputs:
            self._finish_reason = completion.finish_reason
            if self._reasoning_tokens is not None:
                self._reasoning_tokens.add(completion.token_ids)
            if self._parser is None:
                logprobs = self._logprobs(completion)
                if completion.text or logprobs:
                    yield from self._output.text(completion.text, logprobs)
                continue
            for event in self._parser.push(completion.text):
                yield from self._parsed(event)
            for event in self._parser.finish() if completion.finish_reason is not None else ():
                yield from self._parsed(event)

    def _logprobs(self, completion: CompletionOutput) -> list[Json]:
        if self._num_top is None:
            return []
        return chat_logprobs(self._texts, completion.token_ids, completion.logprobs or [], self._num_top)["content"]

    def _parsed(self, event: AnswerEvent) -> Iterator[Json]:
        match event:
            case Content(text):
                return self._output.text(text)
            case Reasoning(text):
                return self._output.reasoning(text)
            case CallStart(_, name, call_id):
                return self._output.call(call_id, name)
            case CallArguments(_, text):
                return self._output.arguments(text)

    @property
    def _status(self) -> str:
        return "incomplete" if self._finish_reason in INCOMPLETE else "completed"

    @property
    def _usage(self) -> Json:
        return usage_json(self.usage, 0 if self._reasoning_tokens is None else self._reasoning_tokens.count)

    def _finished(self) -> Json:
        incomplete = INCOMPLETE.get(self._finish_reason or "")
        response = self._head.as_json(self._status, self._output.items, usage=self._usage, incomplete=incomplete)
        self._keep(response)
        return response

    def _event(self, event: Json) -> bytes:
        numbered = {**event, "sequence_number": self._num_events}
        self._num_events += 1
        return sse_event(numbered, event["type"])
