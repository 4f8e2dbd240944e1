"""Host: `ChatResponse`: the responses of /v1/chat/completions, whole or in chunks, from the engine's outputs."""

from collections.abc import Iterator
from typing import Any

from jaxserve.core.outputs import CompletionOutput, RequestOutput
from jaxserve.server.openai.requests.chat_body import ChatBody
from jaxserve.server.openai.responses.choice_end import choice_end
from jaxserve.server.openai.responses.envelope import Envelope, Usage
from jaxserve.server.openai.responses.openai_logprobs import TokenTexts, chat_logprobs, prompt_logprobs

WHOLE, CHUNK = "chat.completion", "chat.completion.chunk"


class ChatResponse:
    """role: the response role; the first chunk of each choice carries it, without generated text.

    start: the start of the message: the client's last message if the response continues it and `echo` is set, else
    empty.
    """

    def __init__(self, body: ChatBody, envelope: Envelope, texts: TokenTexts, role: str, start: str):
        self.usage = Usage(1)
        self._body, self._envelope, self._texts, self._role, self._start = body, envelope, texts, role, start
        self._has_started = [False] * body.n

    def whole(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        (output,) = outputs
        self.usage.add(0, output)
        choices: list[dict[str, Any]] = []
        for completion in sorted(output.outputs, key=lambda completion: completion.index):
            message = {"role": self._role, "content": self._start + completion.text, "refusal": None}
            choices.append(self._choice(completion, "message", message))
        response = {**self._envelope.fields(WHOLE), "choices": choices, "usage": self.usage.as_json()}
        response["prompt_logprobs"] = prompt_logprobs(
            output.prompt_token_ids, output.prompt_logprobs, self._body.prompt_logprobs
        )
        if self._body.return_token_ids:
            response["prompt_token_ids"] = output.prompt_token_ids
        return response

    def chunks(self, prompt_index: int, output: RequestOutput) -> Iterator[dict[str, Any]]:
        """The chunks for a part of the output, each with the usage of its choice: the first of a choice has its role,
        later ones its new text."""
        self.usage.add(0, output)
        for completion in output.outputs:
            if not self._has_started[completion.index]:
                self._has_started[completion.index] = True
                yield self._first_chunk(completion.index, output)
            choice = self._choice(completion, "delta", {"content": completion.text})
            has_tokens = choice["logprobs"] or self._body.return_token_ids
            if completion.text or completion.finish_reason or has_tokens:
                usage = self.usage.of_sample(0, completion.index)
                yield {**self._envelope.fields(CHUNK), "choices": [choice], "usage": usage}

    def last_chunk(self) -> dict[str, Any]:
        """The chunk for the usage of the request, without choices."""
        return {**self._envelope.fields(CHUNK), "choices": [], "usage": self.usage.as_json()}

    def _first_chunk(self, index: int, output: RequestOutput) -> dict[str, Any]:
        delta = {"role": self._role, "content": self._start}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        chunk = {**self._envelope.fields(CHUNK), "choices": [choice], "usage": self.usage.before_output(0)}
        return chunk | ({"prompt_token_ids": output.prompt_token_ids} if self._body.return_token_ids else {})

    def _choice(self, completion: CompletionOutput, key: str, message: dict[str, Any]) -> dict[str, Any]:
        logprobs = None
        if self._body.logprobs:
            entries = completion.logprobs or []
            logprobs = chat_logprobs(self._texts, completion.token_ids, entries, self._body.top_logprobs)
        choice: dict[str, Any] = {
            "index": completion.index,
            key: message,
            "logprobs": logprobs,
            **choice_end(completion),
        }
        return choice | ({"token_ids": completion.token_ids} if self._body.return_token_ids else {})
