"""Host: `ChatResponse`: the responses of /v1/chat/completions, whole or in chunks, from the engine's outputs."""

from collections.abc import Iterator
from typing import Any

from jaxserve.core.outputs import CompletionOutput, RequestOutput
from jaxserve.server.openai.requests.chat_body import ChatBody
from jaxserve.server.openai.responses.chat_answers import ChatAnswers
from jaxserve.server.openai.responses.envelope import Envelope, Usage
from jaxserve.server.openai.responses.openai_logprobs import TokenTexts, chat_logprobs, prompt_logprobs

WHOLE, CHUNK = "chat.completion", "chat.completion.chunk"
NOT_ENDED = {"finish_reason": None, "stop_reason": None}


class ChatResponse:
    """answers: the messages. The first chunk of each choice has their role and start, and nothing generated."""

    def __init__(self, body: ChatBody, envelope: Envelope, texts: TokenTexts, answers: ChatAnswers):
        self.usage = Usage(1)
        self._body, self._envelope, self._texts, self._answers = body, envelope, texts, answers
        self._has_started = [False] * body.n

    def whole(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        (output,) = outputs
        self.usage.add(0, output)
        choices: list[dict[str, Any]] = []
        for completion in sorted(output.outputs, key=lambda completion: completion.index):
            message = self._answers.message(output, completion)
            choices.append(self._choice(completion, {"message": message}))
        self.usage.num_reasoning_tokens = self._answers.num_reasoning_tokens
        response = {**self._envelope.fields(WHOLE), "choices": choices, "usage": self.usage.as_json()}
        response["prompt_logprobs"] = prompt_logprobs(
            output.prompt_token_ids, output.prompt_logprobs, self._body.prompt_logprobs
        )
        if self._body.return_token_ids:
            response["prompt_token_ids"] = output.prompt_token_ids
        return response

    def chunks(self, prompt_index: int, output: RequestOutput) -> Iterator[dict[str, Any]]:
        """The chunks for a part of the output, each with the usage of its choice: the first of a choice has its role,
        later ones its new text. Of several chunks the first has what belongs to tokens, the last the finish reason."""
        self.usage.add(0, output)
        for completion in output.outputs:
            if not self._has_started[completion.index]:
                self._has_started[completion.index] = True
                yield self._first_chunk(completion.index, output)
            deltas = self._answers.deltas(output, completion)
            self.usage.num_reasoning_tokens = self._answers.num_reasoning_tokens
            usage = self.usage.of_sample(0, completion.index)
            for choice in self._delta_choices(completion, deltas):
                yield {**self._envelope.fields(CHUNK), "choices": [choice], "usage": usage}

    def last_chunk(self) -> dict[str, Any]:
        """The chunk for the usage of the request, without choices."""
        return {**self._envelope.fields(CHUNK), "choices": [], "usage": self.usage.as_json()}

    def _first_chunk(self, index: int, output: RequestOutput) -> dict[str, Any]:
        delta = {"role": self._answers.role, "content": self._answers.start}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        chunk = {**self._envelope.fields(CHUNK), "choices": [choice], "usage": self.usage.before_output(0)}
        return chunk | ({"prompt_token_ids": output.prompt_token_ids} if self._body.return_token_ids else {})

    def _delta_choices(self, completion: CompletionOutput, deltas: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """A choice for each delta, and for tokens or an end without one."""
        first = self._choice(completion, {"delta": {"content": ""}})
        if not deltas and (completion.finish_reason or first["logprobs"] or self._body.return_token_ids):
            yield first
        without_tokens: dict[str, Any] = {"logprobs": None}
        if self._body.return_token_ids:
            without_tokens["token_ids"] = []
        for number, delta in enumerate(deltas):
            end = {} if number == len(deltas) - 1 else NOT_ENDED
            yield {**first, "delta": delta, **(without_tokens if number else {}), **end}

    def _choice(self, completion: CompletionOutput, said: dict[str, Any]) -> dict[str, Any]:
        logprobs = None
        if self._body.logprobs:
            entries = completion.logprobs or []
            logprobs = chat_logprobs(self._texts, completion.token_ids, entries, self._body.top_logprobs)
        choice: dict[str, Any] = {
            "index": completion.index,
            **said,
            "logprobs": logprobs,
            **self._answers.end(completion),
        }
        return choice | ({"token_ids": completion.token_ids} if self._body.return_token_ids else {})
