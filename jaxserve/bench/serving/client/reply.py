"""Host: `RequestResult`, what came of one request, and when; `Failure`, why nothing did."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

MAX_MESSAGE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Failure:
    """kind: "HTTP 429", "timeout" and so on; requests that fail alike are counted under one. message: what was said."""

    kind: str
    message: str

    @classmethod
    def of(cls, kind: str, message: str) -> "Failure":
        return cls(kind, one_line(message))


def one_line(message: str) -> str:
    """Short, and without what is no text: a server could write on the terminal otherwise."""
    return "".join(filter(str.isprintable, " ".join(message.split())))[:MAX_MESSAGE_CHARS]


@dataclass(frozen=True, slots=True)
class RequestResult:
    """Moments are seconds on one clock.

    token_s: when each chunk came that held tokens, whatever their number. end_s: when the text's last chunk came, or
    the failure. input_len, output_len: tokens as the server counted them; None: it did not say.
    """

    sent_s: float
    token_s: Sequence[float]
    end_s: float
    input_len: int | None
    output_len: int
    failure: Failure | None = None

    @property
    def ttft_s(self) -> float | None:
        """From sending to the first chunk with tokens; None where no token came."""
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
        """Mean time of a token after the first; None where there is none."""
        if self.output_len < 2 or not self.token_s:
            return None
        return (self.end_s - self.token_s[0]) / (self.output_len - 1)
