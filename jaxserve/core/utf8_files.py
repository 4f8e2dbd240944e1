"""Host: `read_utf8`: the text of a file that a user names."""

from pathlib import Path

from jaxserve.core.errors import RequestError


def read_utf8(path: Path, param: str | None = None) -> str:
    """Raises RequestError for one that is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not UTF-8 text ({error})", param) from None


def check_utf8(text: str, name: str) -> None:
    """Raises RequestError where a text has halves of characters, which no UTF-8 has."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RequestError(f"{name} is not UTF-8 text") from None
