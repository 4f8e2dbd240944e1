"""Host: `CompletionResponse`: the responses of /v1/completions, whole or in chunks, from the engine's outputs."""

from collections.abc import Iterator, Sequence
from typing import Any

from jaxserve.core.outputs import CompletionOutput, RequestOutput
from jaxserve.server.openai.requests.completion_body import CompletionBody
from jaxserve.server.openai.responses.envelope import Envelope, Usage
from jaxserve.server.openai.responses.openai_logprobs import CompletionLogprobs, Position, TokenTexts, prompt_logprobs
from jaxserve.text.detokenize import Detokenizer, TextStream
from jaxserve.text.tokenizer import Tokenizer


class CompletionResponse:
    """Sample j of prompt i is choice i · n + j."""

    def __init__(
        self,
        body: CompletionBody,
        envelope: Envelope,
        num_prompts: int,
        tokenizer: Tokenizer | None,
        detokenizer: Detokenizer | None,
    ):
        self.usage = Usage(num_prompts, counts_output=body.max_tokens != 0)
        self._body, self._envelope, self._detokenizer = body, envelope, detokenizer
        self._texts = TokenTexts(tokenizer, as_ids=body.return_tokens_as_token_ids)
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
        if self._body.return_token_ids and len(outputs) == 1:
            response["prompt_token_ids"] = outputs[0].prompt_token_ids
        return response

    def chunks(self, prompt_index: int, output: RequestOutput) -> Iterator[dict[str, Any]]:
        """The chunks for a part of the output: one for each sample with new text or tokens."""
        self.usage.add(prompt_index, output)
        for completion in output.outputs:
            choice = self._choice(prompt_index, output, completion, is_whole=False)
            if choice["text"] or choice["finish_reason"] or choice["logprobs"] or self._body.return_token_ids:
                yield {**self._envelope.fields("text_completion"), "choices": [choice]}

    def last_chunk(self) -> dict[str, Any]:
        """The chunk for usage, without choices."""
        return {**self._envelope.fields("text_completion"), "choices": []}

    def _choice(
        self, prompt_index: int, output: RequestOutput, completion: CompletionOutput, *, is_whole: bool
    ) -> dict[str, Any]:
        body, index = self._body, prompt_index * self._body.n + completion.index
        is_first, self._has_started[index] = not self._has_started[index], True
        if output.prompt_logprobs is not None:  # they arrive once, with the first part of any sample
            self._prompt_logprobs[prompt_index] = output.prompt_logprobs
        text, logprobs, ids = completion.text, None, completion.token_ids
        is_prefill_only = body.max_tokens == 0
        if is_prefill_only:
            text, ids = "", []
        if body.logprobs is not None:
            entries = [] if is_prefill_only else completion.logprobs or []
            covered_ids, positions = list(ids), list(entries)
            if body.echo and is_first:
                covered_ids = [*output.prompt_token_ids, *covered_ids]
                positions = [*self._prompt_logprobs[prompt_index], *positions]
            if is_first:
                stream = self._stream(() if body.echo else output.prompt_token_ids)
                self._logprobs[index] = CompletionLogprobs(self._texts, body.logprobs, stream)
            logprobs = self._logprobs[index].add(covered_ids, positions)
        if body.echo and is_first:
            text = self._prompt_text(output) + text
        choice: dict[str, Any] = {
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": "length" if is_prefill_only and completion.finish_reason else completion.finish_reason,
            "stop_reason": None if is_prefill_only else completion.stop_reason,
        }
        if is_whole:
            entries = output.prompt_logprobs
            choice["prompt_logprobs"] = prompt_logprobs(output.prompt_token_ids, entries, body.prompt_logprobs)
        if body.return_token_ids:
            choice["token_ids"] = ids
            if is_first:
                choice["prompt_token_ids"] = output.prompt_token_ids
        return choice

    def _prompt_text(self, output: RequestOutput) -> str:
        """The prompt as the client sent it; for token ids and truncated prompts, their detokenized text. An incomplete
        character at its end belongs to the completion, if there is one."""
        if output.prompt is not None:
            return output.prompt
        if (stream := self._stream(())) is None:
            return ""
        text = stream.push(output.prompt_token_ids)
        return text + stream.finish() if self._body.max_tokens == 0 else text

    def _stream(self, prompt_ids: Sequence[int]) -> TextStream | None:
        """A stream that detokenizes the text after these tokens."""
        if self._detokenizer is None:
            return None
        return self._detokenizer.stream(prompt_ids, self._body.skip_special_tokens)
