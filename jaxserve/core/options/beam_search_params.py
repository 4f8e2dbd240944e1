"""Host: `BeamSearchParams`, how to search for the likeliest texts; the names are vLLM's and transformers'."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from jaxserve.core.errors import RequestError
from jaxserve.core.options.sampling_checks import boolean, integer, number

MAX_PENALTY = 5.0  # lengths to a higher power leave float32


@dataclass(frozen=True)
class BeamSearchParams:
    """Checked when it is made; a value that cannot be honoured raises `RequestError`.

    beam_width: texts that grow side by side, and that are returned. max_tokens: the most that a text gets.
    ignore_eos: the model's end-of-sequence tokens do not end a text. temperature: 0 only, for nothing is drawn.
    length_penalty: the score of a text that has ended is the sum of its log-probabilities divided by its number of
    tokens to this power; above 0 longer texts gain. include_stop_str_in_output: keep the end-of-sequence token in
    `tokens`; it counts as one of the text's tokens either way.
    early_stopping, as in transformers: when the search ends, once `beam_width` texts have ended. True: at once. False:
    when the best running one would not be among them if it ended now. "never": when it never can be (for a penalty
    above 0, if it kept its sum up to `max_tokens`).
    """

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False
    early_stopping: bool | Literal["never"] = False

    def __new__(cls, *args, **kwargs):
        known = [field.name for field in fields(cls)]
        for name in kwargs.keys() - set(known):
            raise RequestError(f"unknown beam search parameter {name!r}; known: {', '.join(known)}", name)
        return object.__new__(cls)

    def __post_init__(self):
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
