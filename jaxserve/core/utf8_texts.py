"""Host: UTF-8 of texts that users give: files, and strings that may have bytes of no character."""

from pathlib import Path

from jaxserve.core.errors import RequestError


def read_utf8(path: Path, param: str | None = None) -> str:
    """Raises RequestError for one that is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not UTF-8 text ({error})", param) from None


def is_utf8(text: str) -> bool:
    """Whether a string has no surrogates, as which Python keeps bytes that are not UTF-8."""
    return as_utf8(text) == text


def as_utf8(text: str) -> str:
    """The string with "?" for each surrogate."""
    return text.encode("utf-8", "replace").decode()
