"""Host: `UserText`: marks users' text, so that what a chat template renders shows which text is the template's own.

A special token may come about in several ways: users spell it, parts of messages are joined, a template cuts something
out, or writes its ends around a name. So a mark follows every character of users' text that could begin a special
token, and precedes users' text that could continue one. What spells a special token without a mark in it is the
template's own.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from jaxserve.core.errors import RequestError
from jaxserve.text.message_schema import PART_TYPES, ROLES

MARK = "\U0010ffff"  # a noncharacter, which Unicode keeps out of texts
KNOWN_WORDS = (*ROLES, *PART_TYPES, "function")  # values that templates compare


class UserText:
    """special_tokens: as they are spelled. constants: texts that the template looks for, such as "</think>": they stay
    without marks where they are no part of a special token."""

    def __init__(self, special_tokens: Sequence[str], constants: Iterable[str] = ()):
        self._words = frozenset([*constants, *KNOWN_WORDS])
        firsts = {token[0] for token in special_tokens}
        self._first = re.compile("[" + re.escape("".join(sorted(firsts))) + "]")
        looked_for = {text[i:] for text in self._words for i in range(len(text) - 1) if text[i] in firsts}
        self._looked_for = tuple(text for text in looked_for if not _overlaps(text, special_tokens))
        self._rests = frozenset(token[i:] for token in special_tokens for i in range(1, len(token)))
        self._insides = "\n".join(token[1:] for token in special_tokens)
        self._max_len = max(map(len, special_tokens))

    def marked(self, value: Any) -> Any:
        """A copy of a JSON value, all of whose texts and keys come from users. Raises `RequestError` for a mark."""
        if isinstance(value, str):
            return MARK + self._with_marks(value) if self._may_continue(value) else self._with_marks(value)
        if isinstance(value, Mapping):
            fields = cast(Mapping[Any, Any], value).items()
            return {
                self._with_marks(name) if isinstance(name, str) else name: self.marked(item) for name, item in fields
            }
        if isinstance(value, list | tuple):
            return [self.marked(item) for item in cast(Sequence[Any], value)]
        return value

    def _with_marks(self, text: str) -> str:
        """The text with a mark after each character that could begin a special token."""
        if MARK in text:
            raise RequestError("a message holds U+10FFFF, which is not a character", "messages")
        looked_for = self._looked_for

        def after(found: re.Match[str]) -> str:
            first = found.group()
            return first if looked_for and text.startswith(looked_for, found.start()) else first + MARK

        return self._first.sub(after, text)

    def _may_continue(self, text: str) -> bool:
        """Whether a special token could go on with this text, after what the template writes before it."""
        if not text or text in self._words:
            return False
        is_inside = len(text) < self._max_len and text in self._insides
        return is_inside or any(text[:end] in self._rests for end in range(1, self._max_len))


@lru_cache(maxsize=8)
def user_text(special_tokens: tuple[str, ...], constants: frozenset[str]) -> UserText:
    """`UserText`, made once for a tokenizer and a template."""
    return UserText(special_tokens, constants)


def unmarked(text: str) -> str:
    """The text without marks."""
    return text.replace(MARK, "")


def _overlaps(text: str, special_tokens: Iterable[str]) -> bool:
    return any(text.startswith(token) or token.startswith(text) for token in special_tokens)
