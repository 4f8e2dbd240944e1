"""Host: the bodies of /v1/score and /v1/rerank."""

from typing import Annotated, Any

from pydantic import ConfigDict, Discriminator, Field, Tag

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.requests.base_body import Body, Items
from jaxserve.server.openai.requests.pooled_fields import PooledFields
from jaxserve.server.openai.requests.text_inputs import MAX_TEXTS

ScoredTexts = str | Annotated[Items[str], Field(min_length=1, max_length=MAX_TEXTS)]
# The names under which clients send the two sides: those of vLLM.
PAIRS = (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"))


class ScoreBody(PooledFields):
    """Two sides of texts under one pair of names: one text and any number, or as many on each side."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": list(pair)} for pair in PAIRS]})
    text_1: ScoredTexts | None = None
    text_2: ScoredTexts | None = None
    queries: ScoredTexts | None = None
    documents: ScoredTexts | None = None
    items: ScoredTexts | None = None
    data_1: ScoredTexts | None = None
    data_2: ScoredTexts | None = None

    def model_post_init(self, _: object) -> None:
        sent = {name for pair in PAIRS for name in pair if getattr(self, name) is not None}
        if not any(sent == set(pair) for pair in PAIRS):
            pairs = "; ".join(" and ".join(pair) for pair in PAIRS)
            raise ApiError(400, f"send exactly one pair of fields: {pairs}", param=min(sent, default="text_1"))
        first, second = self.sides
        if len(first) not in (1, len(second)):
            left, right = self.names
            message = f"{left} holds {len(first)} texts and {right} {len(second)}: send one, or as many of each"
            raise ApiError(400, message, param=left)

    @property
    def names(self) -> tuple[str, str]:
        """The names of the two fields that were sent."""
        return next((left, right) for left, right in PAIRS if None not in (getattr(self, left), getattr(self, right)))

    @property
    def sides(self) -> tuple[list[str], list[str]]:
        left, right = ([texts] if isinstance(texts, str) else texts for texts in map(self.__getattribute__, self.names))
        return left, right


class RerankDocument(Body):
    """A document as an object."""

    text: str


def _form(value: Any) -> str:
    return "object" if isinstance(value, dict) else "text"


Document = Annotated[Annotated[str, Tag("text")] | Annotated[RerankDocument, Tag("object")], Discriminator(_form)]


class RerankBody(PooledFields):
    """top_n: results to return, the best first; 0: all. return_documents: results contain the documents' texts."""

    query: str
    documents: Annotated[Items[Document], Field(min_length=1, max_length=MAX_TEXTS)]
    top_n: int = Field(0, ge=0)
    return_documents: bool = True

    @property
    def texts(self) -> list[str]:
        """The documents."""
        return [each if isinstance(each, str) else each.text for each in self.documents]
