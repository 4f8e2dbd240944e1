"""Host: `Texts`: the four forms of text input in OpenAI's API: text, token ids, and lists of either."""

from typing import Annotated, Any, cast

from pydantic import Discriminator, Field, Tag

from jaxserve.server.openai.requests.base_body import Items

MAX_TEXTS = 1024
Ids = Annotated[Items[int], Field(min_length=1)]


def _form(value: Any) -> str:
    """Chosen by the first element: validating 100,000 token ids against all four forms takes a tenth of a second."""
    if not isinstance(value, list):
        return "text"
    items = cast(list[Any], value)
    first = items[0] if items else ""
    return "lists of ids" if isinstance(first, list) else "texts" if isinstance(first, str) else "ids"


Texts = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[Items[str], Field(min_length=1, max_length=MAX_TEXTS), Tag("texts")]
    | Annotated[Ids, Tag("ids")]
    | Annotated[Items[Ids], Field(min_length=1, max_length=MAX_TEXTS), Tag("lists of ids")],
    Discriminator(_form),
]


def as_list(texts: Any) -> list[str] | list[list[int]]:
    """A list of texts, or of lists of token ids."""
    return [texts] if isinstance(texts, str) or isinstance(texts[0], int) else texts
