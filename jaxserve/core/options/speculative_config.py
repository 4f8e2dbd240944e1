"""Host: `SpeculativeConfig`: how an engine drafts tokens, and the checks of these options."""

from dataclasses import dataclass
from typing import Any

from jaxserve.core.options.option_mappings import check_integer, option_error

PARAM = "speculative_config"
METHODS = ("ngram",)
MAX_SPECULATIVE_TOKENS = 63  # with its own token a row computes at most 64 in a round: two words of a draft tree


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeConfig:
    """Draft tokens that the model confirms several at a time; the text is the same as without.

    method: "ngram": drafts are what followed the last tokens where they occurred before in prompt or output.
    num_speculative_tokens: the most drafts of a sequence in a forward pass. prompt_lookup_min, prompt_lookup_max: how
    many of the last tokens must have occurred before. prompt_lookup_branches: of several occurrences that went on in
    different ways the best so many are drafted, side by side: a draft tree, whose branches share the drafts evenly.
    synthetic_acceptance: for benches: every row drafts in every pass, and each draft is accepted with this probability
    if those before it are, so the text is not the model's. None: drafts are accepted if the model confirms them.
    """

    method: str
    num_speculative_tokens: int
    prompt_lookup_min: int = 2
    prompt_lookup_max: int = 4
    prompt_lookup_branches: int = 1
    synthetic_acceptance: float | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise option_error(PARAM, f"method={self.method!r} must be one of {', '.join(METHODS)}")
        check_integer(PARAM, "num_speculative_tokens", self.num_speculative_tokens, 1, MAX_SPECULATIVE_TOKENS)
        check_integer(PARAM, "prompt_lookup_max", self.prompt_lookup_max, 1, 64)
        check_integer(PARAM, "prompt_lookup_min", self.prompt_lookup_min, 1, self.prompt_lookup_max)
        most = self.num_speculative_tokens
        check_integer(PARAM, "prompt_lookup_branches", self.prompt_lookup_branches, 1, most)
        rate: Any = self.synthetic_acceptance
        is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if rate is not None and not (is_number and 0 <= rate <= 1):
            raise option_error(PARAM, f"synthetic_acceptance={rate!r} must be a number from 0 to 1")
