"""Host: `SpeculativeConfig`: how an engine drafts tokens, and the checks of these options."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from jaxserve.core.errors import ConfigError

METHODS = ("ngram",)
MAX_SPECULATIVE_TOKENS = 31  # with its own token a row computes at most 32 in a round


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeConfig:
    """Draft tokens that the model confirms several at a time; the text is the same as without.

    method: "ngram": drafts are what followed the last tokens where they occurred before in prompt or output.
    num_speculative_tokens: the most drafts of a sequence in a forward pass. prompt_lookup_min, prompt_lookup_max: how
    many of the last tokens must have occurred before.
    """

    method: str
    num_speculative_tokens: int
    prompt_lookup_min: int = 2
    prompt_lookup_max: int = 4

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise _error(f"method={self.method!r} must be one of {', '.join(METHODS)}")
        limits = {
            "num_speculative_tokens": MAX_SPECULATIVE_TOKENS,
            "prompt_lookup_min": self.prompt_lookup_max,
            "prompt_lookup_max": 64,
        }
        for name, most in limits.items():
            value: Any = getattr(self, name)
            is_integer = isinstance(value, int) and not isinstance(value, bool)
            if not is_integer or not 1 <= value <= most:
                raise _error(f"{name}={value!r} must be an integer from 1 to {most}")


def read_speculative_config(value: Any) -> SpeculativeConfig | None:
    """The config of a mapping; raises ConfigError that names what is wrong in it."""
    if value is None or isinstance(value, SpeculativeConfig):
        return value
    if not isinstance(value, Mapping):
        raise _error(f"{value!r} must map names of options to values")
    given = cast(Mapping[Any, Any], value)
    names = [field.name for field in fields(SpeculativeConfig)]
    for name in given:
        if name not in names:
            raise _error(f"unknown option {name!r}; known are {', '.join(names)}")
    for name in names[:2]:
        if name not in given:
            raise _error(f"{name} is missing")
    return SpeculativeConfig(**given)


def _error(message: str) -> ConfigError:
    return ConfigError(f"speculative_config: {message}", param="speculative_config")
