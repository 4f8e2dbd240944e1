"""Host: `Conversation`: the turns of a chat, the settings of the next answer and the figures of the last one.

`llm` is any object with the `render_chat` and `stream` of `LLM`. This module does not use the terminal.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from jaxserve.core.compile_times import COMPILE_TIMES
from jaxserve.core.errors import RequestError
from jaxserve.core.options.lora_request import LoRARequest
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.utf8_texts import is_utf8

NOT_IN_CHAT = ("n", "logprobs", "prompt_logprobs", "detokenize")  # a chat shows one answer as text
MAX_SAVED_BYTES = 64 << 20


class ContextFullError(RequestError):
    """The conversation leaves no room for an answer."""


@dataclass(slots=True)
class ChatTurn:
    """Figures of one answer, without the time in which steps were compiled.

    first_token_s: from the question to the first token. rest_s: from there to the last token so far.
    """

    num_prompt_tokens: int
    num_tokens: int = 0
    first_token_s: float = 0.0
    rest_s: float = 0.0
    finish_reason: str | None = None

    @property
    def tokens_per_s(self) -> float | None:
        """Rate after the first token, whose time is that of the prompt; None for a single token."""
        return (self.num_tokens - 1) / self.rest_s if self.num_tokens > 1 and self.rest_s > 0 else None


class Conversation:
    """One chat.

    options: fields of `SamplingParams`. variables: variables of the chat template, such as enable_thinking.
    lora_request: the adapter of all answers.
    """

    def __init__(
        self,
        llm: Any,
        max_model_len: int,
        *,
        system: str | None = None,
        options: Mapping[str, Any] | None = None,
        variables: Mapping[str, Any] | None = None,
        lora_request: LoRARequest | None = None,
    ):
        self._llm = llm
        self._max_model_len = max_model_len
        self._variables = dict(variables or {})
        self._adapter = {} if lora_request is None else {"lora_request": lora_request}
        self.system = system
        self.turns: list[dict[str, str]] = []
        self.options: dict[str, Any] = {"max_tokens": None, **(options or {})}
        self.params = SamplingParams(**self.options)
        self.last: ChatTurn | None = None

    @property
    def messages(self) -> list[dict[str, str]]:
        """The system message, if any, and all turns."""
        return [*([] if self.system is None else [{"role": "system", "content": self.system}]), *self.turns]

    def ask(self, text: str) -> Iterator[str]:
        """The answer, piece by piece. Closing the iterator stops the answer; the question and the answer so far stay.

        Nothing is added to the turns if the answer has no text, since a message must have some. Raises `RequestError`
        (`ContextFullError`) at once.
        """
        if not is_utf8(text):
            raise RequestError("the question is not UTF-8 text")
        return self._answer([*self.turns, {"role": "user", "content": text}])

    def retry(self) -> Iterator[str]:
        """Another answer to the last question, in place of the previous one."""
        return self._answer(self.turns[: self._last_question() + 1])

    def undo(self) -> str:
        """Removes the last question and its answer; returns the question."""
        start = self._last_question()
        question = self.turns[start]["content"]
        del self.turns[start:]
        return question

    def reset(self) -> None:
        """Removes all turns; the system message stays."""
        self.turns = []

    def set(self, name: str, value: Any) -> None:
        """Changes a field of `SamplingParams` for the next answers."""
        if name in NOT_IN_CHAT:
            raise RequestError(f"{name} cannot be set in a chat, which shows one answer as text", name)
        options = self.options | {name: value}
        self.params, self.options = SamplingParams(**options), options

    def save(self, path: Path) -> None:
        """Writes all messages as JSON."""
        path.write_text(json.dumps(self.messages, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")

    def load(self, path: Path) -> None:
        """Replaces all messages by saved ones."""
        if path.stat().st_size > MAX_SAVED_BYTES:
            raise RequestError(f"{path} is larger than {MAX_SAVED_BYTES >> 20} MiB")
        try:
            found: Any = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{path} is not JSON: {error}") from None
        if not isinstance(found, list) or not all(map(_is_message, cast(list[Any], found))):
            raise RequestError(f"{path} must hold a list of messages, each with a role and a content that are text")
        messages = cast(list[dict[str, str]], found)
        begins_with_system = bool(messages) and messages[0]["role"] == "system"
        turns = messages[begins_with_system:]
        for turn in turns:
            if turn["role"] not in ("user", "assistant"):
                role = turn["role"]
                raise RequestError(f"{path}: after the first message, roles are user and assistant, not {role!r}")
        self.system, self.turns = messages[0]["content"] if begins_with_system else None, turns

    def _last_question(self) -> int:
        questions = [i for i, turn in enumerate(self.turns) if turn["role"] == "user"]
        if not questions:
            raise RequestError("there is no question yet")
        return questions[-1]

    def _answer(self, turns: list[dict[str, str]]) -> Iterator[str]:
        asked_s = COMPILE_TIMES.work_s()
        messages = [*self.messages[: self.system is not None], *turns]
        prompt = self._llm.render_chat(messages, chat_template_kwargs=self._variables)
        num_tokens = len(prompt["prompt_token_ids"])
        if num_tokens >= self._max_model_len:
            raise ContextFullError(
                f"the conversation has {num_tokens} tokens: the context of {self._max_model_len} has no room for an "
                "answer",
                "messages",
            )
        return self._pieces(
            turns, self._llm.stream(prompt, self.params, **self._adapter), ChatTurn(num_tokens), asked_s
        )

    def _pieces(self, turns: list[dict[str, str]], stream: Any, answer: ChatTurn, asked_s: float) -> Iterator[str]:
        text = ""
        try:
            for output in stream:
                (completion,) = output.outputs
                if not answer.num_tokens:
                    answer.first_token_s = COMPILE_TIMES.work_s() - asked_s
                answer.num_tokens += len(completion.token_ids)
                answer.rest_s = COMPILE_TIMES.work_s() - asked_s - answer.first_token_s
                answer.finish_reason = completion.finish_reason
                text += completion.text
                yield completion.text
        finally:
            stream.close()
            if answer.finish_reason != "error" and text:
                self.turns = [*turns, {"role": "assistant", "content": text}]
            self.last = answer


def _is_message(value: Any) -> bool:
    message = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    texts = [message.get(name) for name in ("role", "content")]
    return all(isinstance(text, str) and is_utf8(text) for text in texts)
