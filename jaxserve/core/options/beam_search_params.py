"""Host: `BeamSearchParams`: parameters of beam search, with the names of vLLM and transformers."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_checks import boolean, integer, number

MAX_PENALTY = 5.0  # lengths to a higher power overflow float32


@dataclass(frozen=True)
class BeamSearchParams:
    """Values are checked at construction; one that is not supported raises `RequestError`.

    beam_width: texts that are extended at the same time, and returned. max_tokens: the most tokens of a text.
    ignore_eos: the model's end-of-sequence tokens do not end a text. temperature: must be 0, as nothing is drawn.
    length_penalty: the score of an ended text is the sum of its log-probabilities divided by its number of tokens to
    this power; values above 0 favor longer texts. include_stop_str_in_output: keep the end-of-sequence token in
    `tokens`; it counts as one of the text's tokens in any case.
    early_stopping, as in transformers: when the search ends after `beam_width` texts have ended. True: at once. False:
    when the best running text would not be among them if it ended now. "never": when it cannot be among them any more
    (for a penalty above 0, if it kept its sum up to `max_tokens`).
    """

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False
    early_stopping: bool | Literal["never"] = False

    def __new__(cls, *args: Any, **kwargs: Any) -> "BeamSearchParams":
        known = [field.name for field in fields(cls)]
        for name in kwargs.keys() - set(known):
            if name in ("response_format", "structured_outputs"):
                raise RequestError(f"{name} is not supported by beam search: use generate", name)
            raise RequestError(f"unknown beam search parameter {name!r}; known: {', '.join(known)}", name)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))


def _temperature(name: str, value: Any) -> float:
    if number(0.0)(name, value) != 0:
        raise RequestError(f"{name} must be 0: beam search draws nothing, got {value!r}", name)
    return 0.0


def _early_stopping(name: str, value: Any) -> bool | Literal["never"]:
    if not isinstance(value, bool) and (not isinstance(value, str) or value != "never"):
        raise RequestError(f"{name} must be true, false or 'never', got {value!r}", name)
    return value


_CHECKS = {
    "beam_width": integer(1),
    "max_tokens": integer(1),
    "ignore_eos": boolean,
    "temperature": _temperature,
    "length_penalty": number(-MAX_PENALTY, MAX_PENALTY),
    "include_stop_str_in_output": boolean,
    "early_stopping": _early_stopping,
}
