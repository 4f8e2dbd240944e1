"""Host: `Usage`, the tokens of a request as they are counted piece by piece."""

from typing import Any

from jaxserve.core.outputs import RequestOutput


class Usage:
    """A prompt counts once, however many samples it has; some of its tokens may have been found in the prefix cache.

    counts_output: False where the tokens drawn are not what was asked for.
    """

    def __init__(self, num_prompts: int, *, counts_output: bool = True):
        self._counts_output = counts_output
        self._prompt = [0] * num_prompts
        self._cached = [0] * num_prompts
        self.num_completion_tokens = 0

    def add(self, prompt: int, piece: RequestOutput) -> None:
        """Count a piece of the prompt-th prompt's answer."""
        self._prompt[prompt] = len(piece.prompt_token_ids)
        self._cached[prompt] = piece.num_cached_tokens
        if self._counts_output:
            self.num_completion_tokens += sum(len(output.token_ids) for output in piece.outputs)

    @property
    def num_prompt_tokens(self) -> int:
        return sum(self._prompt)

    @property
    def num_cached_tokens(self) -> int:
        return sum(self._cached)

    def as_json(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.num_prompt_tokens,
            "total_tokens": self.num_prompt_tokens + self.num_completion_tokens,
            "completion_tokens": self.num_completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.num_cached_tokens},
        }
