"""Host: `RequestResult`: times and token counts of one request; `Failure`: the reason why it failed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

MAX_MESSAGE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Failure:
    """kind: "HTTP 429", "timeout" and so on, by which failures are counted. message: the server's or library's text."""

    kind: str
    message: str

    @classmethod
    def of(cls, kind: str, message: str) -> "Failure":
        """A failure with its message on one line."""
        return cls(kind, one_line(message))


def one_line(message: str) -> str:
    """A short line of printable characters, so that a server cannot write control characters on the terminal."""
    return "".join(filter(str.isprintable, " ".join(message.split())))[:MAX_MESSAGE_CHARS]


@dataclass(frozen=True, slots=True)
class RequestResult:
    """Times are seconds on one clock.

    token_s: arrival of each chunk with tokens, of any number. end_s: arrival of the last chunk of text, or the time of
    the failure. input_len, output_len: token counts reported by the server; None where it reports none.
    """

    sent_s: float
    token_s: Sequence[float]
    end_s: float
    input_len: int | None
    output_len: int
    failure: Failure | None = None

    @property
    def ttft_s(self) -> float | None:
        """From sending to the first chunk with tokens; None without tokens."""
        return self.token_s[0] - self.sent_s if self.token_s else None

    @property
    def e2el_s(self) -> float:
        """From sending to the end of the text."""
        return self.end_s - self.sent_s

    @property
    def itls_s(self) -> list[float]:
        """Gaps between chunks."""
        return [later - earlier for earlier, later in pairwise(self.token_s)]

    @property
    def tpot_s(self) -> float | None:
        """Mean time per token after the first; None for fewer than two tokens."""
        if self.output_len < 2 or not self.token_s:
            return None
        return (self.end_s - self.token_s[0]) / (self.output_len - 1)
