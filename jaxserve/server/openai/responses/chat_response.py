"""Host: `ChatResponse`, what /v1/chat/completions sends, whole or in chunks, from the pieces that the engine gives."""

from collections.abc import Iterator
from typing import Any

from jaxserve.core.outputs import CompletionOutput, RequestOutput
from jaxserve.server.openai.requests.chat_body import ChatBody
from jaxserve.server.openai.responses.envelope import Envelope
from jaxserve.server.openai.responses.openai_logprobs import TokenTexts, chat_logprobs, prompt_logprobs
from jaxserve.server.openai.responses.usage import Usage
from jaxserve.text.tokenizer import Tokenizer

WHOLE, CHUNK = "chat.completion", "chat.completion.chunk"


class ChatResponse:
    """role: of the messages that answer. The first chunk of each choice carries it, with empty content.

    start: the beginning of the message where it goes on with the client's last one and `echo` asks for it, else empty.
    """

    def __init__(self, body: ChatBody, head: Envelope, tokenizer: Tokenizer | None, role: str, start: str = ""):
        self.usage = Usage(1)
        self._body, self._head, self._role, self._start = body, head, role, start
        self._texts = TokenTexts(tokenizer, as_ids=body.return_tokens_as_token_ids)
        self._has_begun = [False] * body.n

    def whole(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        (output,) = outputs
        self.usage.add(0, output)
        choices = []
        for completion in sorted(output.outputs, key=lambda completion: completion.index):
            message = {"role": self._role, "content": self._start + completion.text, "refusal": None}
            choices.append(self._choice(completion, "message", message))
        answer = {**self._head.fields(WHOLE), "choices": choices, "usage": self.usage.as_json()}
        answer["prompt_logprobs"] = prompt_logprobs(
            output.prompt_token_ids, output.prompt_logprobs, self._body.prompt_logprobs
        )
        if self._body.return_token_ids:
            answer["prompt_token_ids"] = output.prompt_token_ids
        return answer

    def chunks(self, prompt: int, piece: RequestOutput) -> Iterator[dict[str, Any]]:
        """The chunks that a piece makes: a first one for each choice, and what each has to say."""
        self.usage.add(0, piece)
        for completion in piece.outputs:
            if not self._has_begun[completion.index]:
                self._has_begun[completion.index] = True
                yield self._first_chunk(completion.index, piece)
            choice = self._choice(completion, "delta", {"content": completion.text})
            is_worth_it = choice["logprobs"] or self._body.return_token_ids
            if completion.text or completion.finish_reason or is_worth_it:
                yield {**self._head.fields(CHUNK), "choices": [choice]}

    def last_chunk(self) -> dict[str, Any]:
        """The one for usage alone."""
        return {**self._head.fields(CHUNK), "choices": []}

    def _first_chunk(self, index: int, piece: RequestOutput) -> dict[str, Any]:
        delta = {"role": self._role, "content": self._start}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        chunk = {**self._head.fields(CHUNK), "choices": [choice]}
        return chunk | ({"prompt_token_ids": piece.prompt_token_ids} if self._body.return_token_ids else {})

    def _choice(self, completion: CompletionOutput, key: str, said: dict[str, Any]) -> dict[str, Any]:
        logprobs = None
        if self._body.logprobs:
            entries = completion.logprobs or []
            logprobs = chat_logprobs(self._texts, completion.token_ids, entries, self._body.top_logprobs)
        choice: dict[str, Any] = {
            "index": completion.index,
            key: said,
            "logprobs": logprobs,
            "finish_reason": completion.finish_reason,
            "stop_reason": completion.stop_reason,
        }
        return choice | ({"token_ids": completion.token_ids} if self._body.return_token_ids else {})
