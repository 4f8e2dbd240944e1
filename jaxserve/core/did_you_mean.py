"""Host: `did_you_mean`: the end of an error about an unknown name, with the known name that it resembles."""

import difflib
from collections.abc import Iterable

MAX_NAME_CHARS = 100  # comparing millions of characters with the known names takes a second


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """As in "; did you mean 'content'?"; empty where nothing known is similar."""
    close = difflib.get_close_matches(name[:MAX_NAME_CHARS], known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
