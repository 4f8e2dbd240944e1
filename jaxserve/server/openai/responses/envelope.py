"""Host: `Envelope` and `Usage`: the fields that start every generated response, and its token counts."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jaxserve
from jaxserve.core.outputs import RequestOutput

FINGERPRINT = f"jaxserve-{jaxserve.__version__}"


@dataclass(frozen=True, slots=True)
class Envelope:
    """response_id: as in "cmpl-…". model: the name that the client used. created: seconds since the Unix epoch."""

    response_id: str
    model: str
    created: int = field(default_factory=lambda: int(time.time()))

    def fields(self, kind: str) -> dict[str, Any]:
        """kind: the value of `object`."""
        return {
            "id": self.response_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
        }


class Usage:
    """A prompt counts once, whatever its number of samples; cached tokens are those found in the prefix cache.

    counts_output: False if the sampled tokens are not part of the response.
    """

    def __init__(self, num_prompts: int, *, counts_output: bool = True):
        self._counts_output = counts_output
        self._prompt = [0] * num_prompts
        self._cached = [0] * num_prompts
        self._completion: Counter[tuple[int, int]] = Counter()  # by prompt and sample
        self.num_reasoning_tokens: Mapping[int, int] | None = None  # by sample of a chat, if they are counted

    def add(self, prompt_index: int, output: RequestOutput) -> None:
        """Count an output, or a part of one. prompt_index: of its prompt."""
        self._prompt[prompt_index] = len(output.prompt_token_ids)
        self._cached[prompt_index] = output.num_cached_tokens
        for completion in output.outputs if self._counts_output else ():
            self._completion[prompt_index, completion.index] += len(completion.token_ids)

    @property
    def num_completion_tokens(self) -> int:
        return sum(self._completion.values())

    def as_json(self) -> dict[str, Any]:
        """Of the request, so far."""
        reasoning = None if self.num_reasoning_tokens is None else sum(self.num_reasoning_tokens.values())
        return _as_json(sum(self._prompt), self.num_completion_tokens, sum(self._cached), reasoning)

    def of_sample(self, prompt_index: int, index: int) -> dict[str, Any]:
        """Of one sample and its prompt, so far."""
        num_tokens = self._completion[prompt_index, index]
        reasoning = None if self.num_reasoning_tokens is None else self.num_reasoning_tokens.get(index, 0)
        return _as_json(self._prompt[prompt_index], num_tokens, self._cached[prompt_index], reasoning)

    def before_output(self, prompt_index: int) -> dict[str, Any]:
        """Of a sample that has no token yet."""
        return _as_json(self._prompt[prompt_index], 0, self._cached[prompt_index])


def _as_json(
    num_prompt_tokens: int,
    num_completion_tokens: int,
    num_cached_tokens: int,
    num_reasoning_tokens: int | None = None,
) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "prompt_tokens": num_prompt_tokens,
        "total_tokens": num_prompt_tokens + num_completion_tokens,
        "completion_tokens": num_completion_tokens,
        "prompt_tokens_details": {"cached_tokens": num_cached_tokens},
    }
    if num_reasoning_tokens is not None:
        counts["completion_tokens_details"] = {"reasoning_tokens": num_reasoning_tokens}
    return counts
