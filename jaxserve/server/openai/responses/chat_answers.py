"""Host: `ChatAnswers`: the messages of a chat's choices, whole or in deltas: content, reasoning, calls of tools."""

from collections.abc import Iterable
from typing import Any

from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.outputs import CompletionOutput, RequestOutput
from jaxserve.server.openai.requests.chat_body import ChatBody
from jaxserve.server.openai.responses.choice_end import choice_end
from jaxserve.server.openai.responses.reasoning_tokens import ReasoningTokens
from jaxserve.text.detokenize import Detokenizer
from jaxserve.text.parsing.answer_events import AnswerEvent, CallArguments, CallStart, Content, Reasoning
from jaxserve.text.parsing.answer_format import AnswerFormat
from jaxserve.text.parsing.answer_parser import AnswerParser

REASONING = "reasoning_content"


class ChatAnswers:
    """Reads the text of each choice as it arrives.

    role: of the messages. start: their content begins with it. params: by which the texts were made.
    """

    def __init__(
        self,
        body: ChatBody,
        answers: AnswerFormat,
        detokenizer: Detokenizer | None,
        params: SamplingParams,
        role: str,
        start: str,
    ):
        self.role, self.start = role, start
        self._answers, self._detokenizer, self._params = answers, detokenizer, params
        self._shows_reasoning = body.include_reasoning
        self._parsers: dict[int, AnswerParser] = {}  # by choice, once it has started
        self._tokens: dict[int, ReasoningTokens] = {}

    def message(self, output: RequestOutput, completion: CompletionOutput) -> dict[str, Any]:
        """The whole message of a choice. Its content is null where only reasoning or calls are said."""
        contents, thoughts, calls = [self.start], list[str](), list[dict[str, Any]]()
        for event in self._events(output, completion):
            match event:
                case Content(text):
                    contents.append(text)
                case Reasoning(text):
                    thoughts.append(text)
                case CallStart(_, name, call_id):
                    calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}})
                case CallArguments(index, text):
                    calls[index]["function"]["arguments"] += text
        content = "".join(contents)
        has_more = calls or self._count_reasoning(completion.index)
        message = {"role": self.role, "content": content if content or not has_more else None, "refusal": None}
        if thoughts and self._shows_reasoning:
            message[REASONING] = "".join(thoughts)
        return message | ({"tool_calls": calls} if calls else {})

    def deltas(self, output: RequestOutput, completion: CompletionOutput) -> list[dict[str, Any]]:
        """What a part of a choice adds to its message. After calls a last, empty one goes with the finish reason."""
        if self._answers.is_plain:
            return [{"content": completion.text}] if completion.text else []
        found = [delta for event in self._events(output, completion) if (delta := self._delta(event)) is not None]
        return [*found, {}] if completion.finish_reason and self._num_calls(completion.index) else found

    def end(self, completion: CompletionOutput) -> dict[str, str | int | None]:
        """Why a choice ended, as in `choice_end`; one with calls that ended by itself did so to have them made."""
        end = choice_end(completion)
        is_call = end["finish_reason"] == "stop" and self._num_calls(completion.index)
        return {**end, "finish_reason": "tool_calls"} if is_call else end

    @property
    def num_reasoning_tokens(self) -> dict[int, int] | None:
        """By choice, so far; None where reasoning is not told apart."""
        if self._answers.tags is None:
            return None
        return {index: tokens.count for index, tokens in self._tokens.items()}

    def _events(self, output: RequestOutput, completion: CompletionOutput) -> Iterable[AnswerEvent]:
        """What a part of a choice says, in order."""
        index = completion.index
        if self._answers.is_plain:
            return [Content(completion.text)]
        if index not in self._parsers:
            self._parsers[index] = self._answers.parser()
        if self._answers.tags is not None and self._detokenizer is not None:
            if index not in self._tokens:
                params = self._params
                shown = params.skip_special_tokens, tuple(params.shown_special_ids)
                stream = self._detokenizer.stream(output.prompt_token_ids, *shown)
                self._tokens[index] = ReasoningTokens(self._answers, stream)
            self._tokens[index].add(completion.token_ids)
        events = self._parsers[index].push(completion.text)
        return [*events, *self._parsers[index].finish()] if completion.finish_reason else events

    def _delta(self, event: AnswerEvent) -> dict[str, Any] | None:
        match event:
            case Content(text):
                return {"content": text}
            case Reasoning(text):
                return {REASONING: text} if self._shows_reasoning else None
            case CallStart(index, name, call_id):
                function = {"name": name, "arguments": ""}
                return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
            case CallArguments(index, text):
                return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}

    def _num_calls(self, index: int) -> int:
        return self._parsers[index].num_calls if index in self._parsers else 0

    def _count_reasoning(self, index: int) -> int:
        return self._tokens[index].count if index in self._tokens else 0
