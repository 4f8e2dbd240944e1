"""Host: `Texts`, the four forms in which OpenAI's clients send texts."""

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from jaxserve.server.openai.requests.base_body import Items

MAX_TEXTS = 1024
Ids = Annotated[Items[int], Field(min_length=1)]


def _form(value: Any) -> str:
    """By the first element alone: to try all forms on 100,000 token ids takes a tenth of a second."""
    if not isinstance(value, list):
        return "text"
    first = value[0] if value else ""
    return "lists of ids" if isinstance(first, list) else "texts" if isinstance(first, str) else "ids"


Texts = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[Items[str], Field(min_length=1, max_length=MAX_TEXTS), Tag("texts")]
    | Annotated[Ids, Tag("ids")]
    | Annotated[Items[Ids], Field(min_length=1, max_length=MAX_TEXTS), Tag("lists of ids")],
    Discriminator(_form),
]


def as_list(texts: Any) -> list[str] | list[list[int]]:
    """Each text, or the token ids of each."""
    return [texts] if isinstance(texts, str) or isinstance(texts[0], int) else texts
