"""Host: `LengthRange`: a range of lengths as typed by the user: 128, or 16:256 for uniform draws with both ends."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LengthRange:
    """Lengths in tokens from `low` to `high` inclusive."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> "LengthRange":
        """Raises `ValueError` with the expected form."""
        found = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", text, re.ASCII)
        low, high = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 1 <= low <= high:
            raise ValueError(f"{text!r} must be a number of tokens such as 128, or a range such as 16:256")
        return cls(low, high)

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}:{self.high}"
