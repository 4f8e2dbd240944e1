"""Host: `score_response` and `rerank_response`: the responses of /v1/score and /v1/rerank."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxserve.core.outputs import EmbeddingRequestOutput
from jaxserve.server.openai.responses.embedding_response import finite_vector
from jaxserve.server.openai.responses.envelope import Envelope

Outputs = Sequence[EmbeddingRequestOutput]


def score_response(first: Outputs, second: Outputs, envelope: Envelope) -> dict[str, Any]:
    """The score of each pair; a single first text is paired with every second one."""
    scores = similarities(first, second)
    return {
        "id": envelope.response_id,
        "object": "list",
        "created": envelope.created,
        "model": envelope.model,
        "data": [{"index": i, "object": "score", "score": score} for i, score in enumerate(scores)],
        "usage": _usage((*first, *second)),
    }


def rerank_response(
    query: EmbeddingRequestOutput, documents: Outputs, envelope: Envelope, *, texts: Sequence[str] | None, top_n: int
) -> dict[str, Any]:
    """The documents by descending score, equal ones in their order. texts: theirs, where the client wants them."""
    scores = similarities([query], documents)
    best = sorted(range(len(scores)), key=lambda i: -scores[i])[: top_n or None]
    results = [
        {"index": i, "relevance_score": scores[i], **({} if texts is None else {"document": {"text": texts[i]}})}
        for i in best
    ]
    usage = _usage((query, *documents))
    return {"id": envelope.response_id, "model": envelope.model, "results": results, "usage": usage}


def similarities(first: Outputs, second: Outputs) -> list[float]:
    """The cosine of the angle between the vectors of each pair, which have length 1."""
    left, right = (np.array([finite_vector(output) for output in side]) for side in (first, second))
    return np.clip(np.sum(left * right, axis=1), -1.0, 1.0).tolist()


def _usage(outputs: Outputs) -> dict[str, int]:
    num_tokens = sum(len(output.prompt_token_ids) for output in outputs)
    return {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
