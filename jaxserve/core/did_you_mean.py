"""Host: the known name that an unknown one resembles, for errors: `similar`, and `did_you_mean` as their end."""

import difflib
from collections.abc import Iterable

MAX_NAME_CHARS = 100  # comparing millions of characters with the known names takes a second


def similar(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` resembles most; None where nothing is similar."""
    return next(iter(difflib.get_close_matches(name[:MAX_NAME_CHARS], known, n=1)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """As in "; did you mean 'content'?"; empty where nothing known is similar."""
    close = similar(name, known)
    return "" if close is None else f"; did you mean {close!r}?"
