"""Host: schemas of the responses of /v1/score and /v1/rerank."""

from typing import Literal

from jaxserve.server.openai.schemas.base import Answer, PromptUsage


class Score(Answer):
    index: int
    object: Literal["score"]
    score: float


class ScoreResponse(Answer):
    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Score]
    usage: PromptUsage


class RankedDocument(Answer):
    text: str


class RankedResult(Answer):
    """index: of the document in the request. document: unless `return_documents` is false."""

    index: int
    relevance_score: float
    document: RankedDocument | None = None


class RerankResponse(Answer):
    """results: the best first."""

    id: str
    model: str
    results: list[RankedResult]
    usage: PromptUsage
