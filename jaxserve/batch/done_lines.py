"""Host: `DoneLines`: which lines of a batch file have a result, in 8 bytes per line."""

from array import array
from collections.abc import Iterable

from jaxserve.batch.batch_lines import DIGEST_CHARS

NONE = 0


class DoneLines:
    """The digests of lines that have a result, by line number. most: the highest number that a line can have."""

    def __init__(self, most: int):
        self._most = most
        self._digests = array("Q")
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: int) -> bool:
        return self.digest(number) is not None

    def add(self, number: int, digest: str) -> None:
        """Raises ValueError for a number or a digest that no line has."""
        if not 0 < number <= self._most or (value := int(digest, 16)) == NONE or value >= 1 << 64:
            raise ValueError(f"no line has the number {number} and the digest {digest}")
        if number >= len(self._digests):
            self._digests.frombytes(bytes(8 * (number + 1 - len(self._digests))))
        self._count += self._digests[number] == NONE
        self._digests[number] = value

    def digest(self, number: int) -> str | None:
        """As it was added; None for a line without a result."""
        value = self._digests[number] if number < len(self._digests) else NONE
        return None if value == NONE else f"{value:0{DIGEST_CHARS}x}"

    def first_missing(self, numbers: Iterable[int]) -> int | None:
        """The first line with a result that is not among `numbers`, which grow; None if there is none."""
        expected = (number for number, value in enumerate(self._digests) if value != NONE)
        number = next(expected, None)
        for each in numbers:
            if number is None or number < each:
                break
            if number == each:
                number = next(expected, None)
        return number
