"""Host: `CompletionResponse`: the responses of /v1/completions, whole or in chunks, from the engine's outputs."""

from collections.abc import Iterator, Sequence
from typing import Any

from jaxserve.core.outputs import CompletionOutput, RequestOutput
from jaxserve.server.openai.requests.completion_body import CompletionBody
from jaxserve.server.openai.responses.choice_end import choice_end
from jaxserve.server.openai.responses.envelope import Envelope, Usage
from jaxserve.server.openai.responses.openai_logprobs import CompletionLogprobs, Position, TokenTexts, prompt_logprobs
from jaxserve.server.openai.responses.prompt_echo import PromptEcho
from jaxserve.text.detokenize import Detokenizer


class CompletionResponse:
    """Sample j of prompt i is choice i · n + j. detokenizer: None without a tokenizer; outputs are token ids then."""

    def __init__(
        self,
        body: CompletionBody,
        envelope: Envelope,
        num_prompts: int,
        texts: TokenTexts,
        detokenizer: Detokenizer | None,
    ):
        self.usage = Usage(num_prompts, counts_output=body.max_tokens != 0)
        self._body, self._envelope, self._texts, self._detokenizer = body, envelope, texts, detokenizer
        self._returns_ids = body.return_token_ids or detokenizer is None
        self._echoes: dict[int, PromptEcho] = {}  # by prompt, once a sample of it has started
        self._logprobs: dict[int, CompletionLogprobs] = {}  # by choice, once it has started
        self._has_started = [False] * (num_prompts * body.n)
        self._prompt_logprobs: list[list[Position]] = [[] for _ in range(num_prompts)]

    def whole(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        choices: list[dict[str, Any]] = []
        for prompt_index, output in enumerate(outputs):
            self.usage.add(prompt_index, output)
            choices += [self._choice(prompt_index, output, completion, is_whole=True) for completion in output.outputs]
        choices.sort(key=lambda choice: choice["index"])
        response = {**self._envelope.fields("text_completion"), "choices": choices, "usage": self.usage.as_json()}
        if self._returns_ids and len(outputs) == 1:
            response["prompt_token_ids"] = outputs[0].prompt_token_ids
        return response

    def chunks(self, prompt_index: int, output: RequestOutput) -> Iterator[dict[str, Any]]:
        """The chunks for a part of the output: one for each sample with new text or tokens, with its usage."""
        self.usage.add(prompt_index, output)
        for completion in output.outputs:
            choice = self._choice(prompt_index, output, completion, is_whole=False)
            if choice["text"] or choice["finish_reason"] or choice["logprobs"] or self._returns_ids:
                usage = self.usage.of_sample(prompt_index, completion.index)
                yield {**self._envelope.fields("text_completion"), "choices": [choice], "usage": usage}

    def last_chunk(self) -> dict[str, Any]:
        """The chunk for the usage of the request, without choices."""
        return {**self._envelope.fields("text_completion"), "choices": [], "usage": self.usage.as_json()}

    def _choice(
        self, prompt_index: int, output: RequestOutput, completion: CompletionOutput, *, is_whole: bool
    ) -> dict[str, Any]:
        body, index = self._body, prompt_index * self._body.n + completion.index
        is_first, self._has_started[index] = not self._has_started[index], True
        if output.prompt_logprobs is not None:  # they arrive once, with the first part of any sample
            self._prompt_logprobs[prompt_index] = output.prompt_logprobs
        text, ids, end = completion.text, completion.token_ids, choice_end(completion)
        is_prefill_only = body.max_tokens == 0
        if is_prefill_only:
            text, ids = "", []
            end = {"finish_reason": "length" if completion.finish_reason else None, "stop_reason": None}
        echo = self._echo(prompt_index, output) if body.echo and is_first else None
        choice: dict[str, Any] = {
            "index": index,
            "text": text if echo is None else echo.text + text,
            "logprobs": None,
            **end,
        }
        if body.logprobs is not None:
            entries = [] if is_prefill_only else completion.logprobs or []
            choice["logprobs"] = self._choice_logprobs(index, prompt_index, output, ids, entries, echo)
        if is_whole:
            entries = output.prompt_logprobs
            choice["prompt_logprobs"] = prompt_logprobs(output.prompt_token_ids, entries, body.prompt_logprobs)
        if self._returns_ids:
            choice["token_ids"] = ids
            if is_first:
                choice["prompt_token_ids"] = output.prompt_token_ids
        return choice

    def _choice_logprobs(
        self,
        index: int,
        prompt_index: int,
        output: RequestOutput,
        ids: Sequence[int],
        positions: Sequence[Position],
        echo: PromptEcho | None,
    ) -> dict[str, Any]:
        """The logprobs of a choice's new tokens, after those of the prompt where that is echoed now."""
        if index not in self._logprobs:
            stream, start = None, 0 if echo is None else len(echo.text)
            if self._detokenizer is not None:
                stream = self._detokenizer.stream(output.prompt_token_ids, self._body.skip_special_tokens)
            self._logprobs[index] = CompletionLogprobs(self._texts, self._body.logprobs or 0, stream, start)
        if echo is None:
            return self._logprobs[index].add(ids, positions)
        all_ids, all_positions = [*output.prompt_token_ids, *ids], [*self._prompt_logprobs[prompt_index], *positions]
        return self._logprobs[index].add(all_ids, all_positions, echo.offsets)

    def _echo(self, prompt_index: int, output: RequestOutput) -> PromptEcho:
        if prompt_index not in self._echoes:
            is_alone = self._body.max_tokens == 0
            self._echoes[prompt_index] = PromptEcho.of(output, self._detokenizer, is_alone=is_alone)
        return self._echoes[prompt_index]
