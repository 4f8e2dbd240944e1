"""Host: `SpeculativeConfig`: how an engine drafts tokens, and the checks of these options."""

from dataclasses import dataclass, fields
from typing import Any

from jaxserve.core.options.option_mappings import check_integer, option_error

PARAM = "speculative_config"
METHODS = ("ngram", "draft_model")
MAX_SPECULATIVE_TOKENS = 63  # with its own token a row computes at most 64 in a round: two words of a draft tree


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeConfig:
    """Draft tokens that the model confirms several at a time; the text is the same as without.

    method: "ngram": drafts are what followed the last tokens where they occurred before in prompt or output;
    "draft_model": a smaller model with the same vocabulary drafts. model: that model, as the engine's own is named.
    num_speculative_tokens: the most drafts of a sequence in a forward pass. prompt_lookup_min, prompt_lookup_max: how
    many of the last tokens must have occurred before. prompt_lookup_branches: of several occurrences that went on in
    different ways the best so many are drafted, side by side: a draft tree, whose branches share the drafts evenly.
    synthetic_acceptance: for benches: every row drafts in every pass, and each draft is accepted with this probability
    if those before it are, so the text is not the model's. None: drafts are accepted if the model confirms them.
    """

    method: str
    num_speculative_tokens: int
    model: str | None = None
    prompt_lookup_min: int = 2
    prompt_lookup_max: int = 4
    prompt_lookup_branches: int = 1
    synthetic_acceptance: float | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise option_error(PARAM, f"method={self.method!r} must be one of {', '.join(METHODS)}")
        if (self.method == "draft_model") != (self.model is not None):
            needed = 'needs model="…", the draft model' if self.model is None else "has no use for model: leave it out"
            raise option_error(PARAM, f"method={self.method!r} {needed}")
        model: Any = self.model
        if model is not None and not (isinstance(model, str) and model):
            raise option_error(PARAM, f"model={model!r} must be the name of a model")
        check_integer(PARAM, "num_speculative_tokens", self.num_speculative_tokens, 1, MAX_SPECULATIVE_TOKENS)
        check_integer(PARAM, "prompt_lookup_max", self.prompt_lookup_max, 1, 64)
        check_integer(PARAM, "prompt_lookup_min", self.prompt_lookup_min, 1, self.prompt_lookup_max)
        most = self.num_speculative_tokens
        check_integer(PARAM, "prompt_lookup_branches", self.prompt_lookup_branches, 1, most)
        if self.method != "ngram":
            others = {f.name: f.default for f in fields(self) if f.name.startswith("prompt_lookup")}
            if changed := [name for name, default in others.items() if getattr(self, name) != default]:
                raise option_error(PARAM, f"{changed[0]} is an option of method='ngram', not of {self.method!r}")
        rate: Any = self.synthetic_acceptance
        is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if rate is not None and not (is_number and 0 <= rate <= 1):
            raise option_error(PARAM, f"synthetic_acceptance={rate!r} must be a number from 0 to 1")
