"""Host: `Texts`, the four forms in which OpenAI's clients send texts."""

from typing import Annotated, Any

from pydantic import Field

MAX_TEXTS = 1024
Ids = Annotated[list[int], Field(min_length=1)]
Texts = (
    str
    | Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS)]
    | Ids
    | Annotated[list[Ids], Field(min_length=1, max_length=MAX_TEXTS)]
)


def as_list(texts: Any) -> list[str] | list[list[int]]:
    """Each text, or the token ids of each."""
    return [texts] if isinstance(texts, str) or isinstance(texts[0], int) else texts
