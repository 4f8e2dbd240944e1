"""Host: `TextReader`: text that arrives in pieces, read by generators that wait for more where they need it.

What a generator yields and returns depends on the whole text only, not on how it was divided: every method looks at no
more than it needs to decide, and waits for that much.
"""

import re
from collections.abc import Callable, Sequence

from jaxserve.text.parsing.answer_events import AnswerEvent, Content, Steps

SPACES = re.compile(r"[ \t\r\n]*")


class TextReader:
    """Every character is read once, so reading takes time in proportion to the text."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0  # where the unread part of `_text` begins
        self._has_ended = False
        self._held: list[str] | None = None

    def feed(self, text: str) -> None:
        self._text = self._text[self._at :] + text
        self._at = 0

    def end(self) -> None:
        """There is no more text than was fed."""
        self._has_ended = True

    @property
    def num_unread(self) -> int:
        """Characters that have arrived and are not read."""
        return len(self._text) - self._at

    def hold(self) -> None:
        """Keep what is read from now on, for `release`."""
        self._held = []

    def release(self) -> str:
        """What was read since `hold`; nothing is kept any more."""
        held, self._held = self._held, None
        return "".join(held or ())

    def take(self, num_chars: int) -> str:
        """Read characters that have arrived."""
        taken = self._text[self._at : self._at + num_chars]
        self._at += num_chars
        if self._held is not None:
            self._held.append(taken)
        return taken

    def more(self) -> Steps[bool]:
        """Wait for more text; False at the end."""
        num_before = self.num_unread
        while self.num_unread == num_before and not self._has_ended:
            yield None
        return self.num_unread > num_before

    def peek(self) -> Steps[str]:
        """The next character, or nothing at the end."""
        if not self.num_unread:
            yield from self.more()
        return self._text[self._at : self._at + 1]

    def spaces(self) -> Steps[None]:
        """Read white space of JSON."""
        yield from self.run_of(SPACES)

    def run_of(self, chars: re.Pattern[str]) -> Steps[str]:
        """Read what a pattern of the form `[…]*` matches."""
        pieces: list[str] = []
        while True:
            found = chars.match(self._text, self._at)
            assert found is not None
            pieces.append(self.take(found.end() - self._at))
            if self.num_unread or not (yield from self.more()):
                return "".join(pieces)

    def accept(self, literal: str) -> Steps[bool]:
        """Read `literal` if the text goes on with it."""
        while self.num_unread < len(literal) and literal.startswith(self._text[self._at :]):
            if not (yield from self.more()):
                return False
        if self._text.startswith(literal, self._at):
            self.take(len(literal))
            return True
        return False

    def run(self, scan: Callable[[str, int], tuple[int, str]]) -> str:
        """Pass the unread text to `scan`, which returns where it stops and what it makes of the text before that."""
        end, made = scan(self._text, self._at)
        self.take(end - self._at)
        return made

    def until(self, markers: Sequence[str], kind: Callable[[str], AnswerEvent] = Content) -> Steps[str | None]:
        """Yield the text before the first of the markers, read and return that, and hold what is read from it on. None
        at the end of the text.

        markers: none is the beginning of another. kind: the event of the text before.
        """
        self._held = None
        any_marker = re.compile("|".join(map(re.escape, markers)))
        longest = max(map(len, markers))
        while True:
            found = any_marker.search(self._text, self._at)
            end = found.start() if found is not None else len(self._text)
            if found is None and not self._has_ended:
                end -= self._num_partial(markers, longest)
            if end > self._at:
                yield kind(self.take(end - self._at))
            if found is not None:
                self.hold()
                return self.take(len(found.group()))
            if not (yield from self.more()) and not self.num_unread:
                return None

    def _num_partial(self, markers: Sequence[str], longest: int) -> int:
        """Characters at the end of the text that a marker may begin with."""
        for num_chars in range(min(longest - 1, self.num_unread), 0, -1):
            tail = self._text[-num_chars:]
            if any(marker.startswith(tail) for marker in markers):
                return num_chars
        return 0
