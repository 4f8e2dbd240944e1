"""Host: `JsonScan`: follows one JSON value through text that arrives in pieces, and finds where it ends or fails.

Models write line breaks and tabs into JSON strings, where JSON has escapes only: they become escapes.
"""

import re
from enum import Enum, auto

PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
SPACES = re.compile(r"[ \t\r\n]*")
NUMBER_CHARS = re.compile(r"[-+.0-9eE]*")
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
ESCAPED = '"\\/bfnrt'
HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
WORDS = {"t": "true", "f": "false", "n": "null"}
NAMED_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class _State(Enum):
    """What the scan is within, or expects next."""

    VALUE = auto()
    FIRST_ITEM = auto()  # a value, or the end of an empty list
    FIRST_KEY = auto()
    KEY = auto()
    COLON = auto()
    NEXT = auto()  # a comma or the end of a list or object
    STRING = auto()
    ESCAPE = auto()
    HEX = auto()
    NUMBER = auto()
    WORD = auto()
    DONE = auto()
    FAILED = auto()


class JsonScan:
    """One value without white space around it. Nesting needs memory, not recursion."""

    def __init__(self) -> None:
        self._state = _State.VALUE
        self._open: list[str] = []  # the brackets that are open
        self._is_key = False  # of the string that is open
        self._rest = 0  # hexadecimal digits to come
        self._word = ""  # the rest of true, false or null
        self._number: list[str] = []

    @property
    def is_done(self) -> bool:
        """Whether the value is complete."""
        return self._state is _State.DONE

    @property
    def has_failed(self) -> bool:
        """Whether the text is no JSON."""
        return self._state is _State.FAILED

    def scan(self, text: str, at: int) -> tuple[int, str]:
        """Follow the value through `text` from `at` on. Returns the index of the first character that is no part of it,
        and its text up to there, with line breaks in strings escaped."""
        pieces: list[str] = []
        while at < len(text) and self._state not in (_State.DONE, _State.FAILED):
            end, piece = self._step(text, at)
            pieces.append(piece)
            at = end
        return at, "".join(pieces)

    def finish(self) -> None:
        """The text has ended: a number is complete, anything else that is open is not."""
        if self._state is _State.NUMBER:
            self._end_number()

    def _step(self, text: str, at: int) -> tuple[int, str]:
        """The next token or a part of it; a state may change without one."""
        match self._state:
            case _State.STRING:
                return self._in_string(text, at)
            case _State.ESCAPE:
                self._rest = 4
                is_hex = text[at] == "u"
                self._state = _State.HEX if is_hex else _State.STRING if text[at] in ESCAPED else _State.FAILED
            case _State.HEX:
                self._rest -= 1
                is_last = self._rest == 0
                self._state = _State.FAILED if text[at] not in HEX_DIGITS else _State.STRING if is_last else _State.HEX
            case _State.NUMBER:
                found = NUMBER_CHARS.match(text, at)
                assert found is not None
                self._number.append(found.group())
                if found.end() < len(text):
                    self._end_number()
                return found.end(), found.group()
            case _State.WORD:
                is_right = text[at] == self._word[0]
                self._word = self._word[1:]
                if not is_right:
                    self._state = _State.FAILED
                elif not self._word:
                    self._end_value()
            case _:
                return self._between(text, at)
        return (at, "") if self._state is _State.FAILED else (at + 1, text[at])

    def _in_string(self, text: str, at: int) -> tuple[int, str]:
        found = PLAIN.match(text, at)
        assert found is not None
        end = found.end()
        if end == len(text):
            return end, found.group()
        char = text[end]
        if char == "\\":
            self._state = _State.ESCAPE
        elif char == '"':
            self._end_string()
        else:
            char = NAMED_ESCAPES.get(char, f"\\u{ord(char):04x}")
        return end + 1, found.group() + char

    def _between(self, text: str, at: int) -> tuple[int, str]:
        """White space, or the character with which a token begins."""
        found = SPACES.match(text, at)
        assert found is not None
        if self._open and found.end() > at:
            return found.end(), found.group()
        char, state = text[at], self._state
        takes_value = state in (_State.VALUE, _State.FIRST_ITEM)
        if char == '"' and (takes_value or state in (_State.FIRST_KEY, _State.KEY)):
            self._is_key, self._state = not takes_value, _State.STRING
        elif char in "{[" and takes_value:
            self._open.append(char)
            self._state = _State.FIRST_KEY if char == "{" else _State.FIRST_ITEM
        elif char in WORDS and takes_value:
            self._word, self._state = WORDS[char][1:], _State.WORD
        elif (char == "-" or "0" <= char <= "9") and takes_value:
            self._number, self._state = [], _State.NUMBER
            return at, ""
        elif char == ":" and state is _State.COLON:
            self._state = _State.VALUE
        elif char == "," and state is _State.NEXT:
            self._state = _State.KEY if self._open[-1] == "{" else _State.VALUE
        elif self._closes(char):
            self._open.pop()
            self._end_value()
        else:
            self._state = _State.FAILED
            return at, ""
        return at + 1, char

    def _closes(self, char: str) -> bool:
        if not self._open or char != ("}" if self._open[-1] == "{" else "]"):
            return False
        return self._state in (_State.NEXT, _State.FIRST_KEY, _State.FIRST_ITEM)

    def _end_string(self) -> None:
        if self._is_key:
            self._state = _State.COLON
        else:
            self._end_value()

    def _end_number(self) -> None:
        if NUMBER.fullmatch("".join(self._number)):
            self._end_value()
        else:
            self._state = _State.FAILED

    def _end_value(self) -> None:
        self._state = _State.NEXT if self._open else _State.DONE
