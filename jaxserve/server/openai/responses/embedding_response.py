"""Host: `embedding_response`: the response of /v1/embeddings."""

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jaxserve.core.outputs import EmbeddingRequestOutput
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.requests.embedding_body import EmbeddingBody


def embedding_response(outputs: list[EmbeddingRequestOutput], body: EmbeddingBody, model: str) -> dict[str, Any]:
    """model: its name in the response. Raises `ApiError` for non-finite vectors, and for `dimensions` over theirs."""
    num_tokens = sum(len(output.prompt_token_ids) for output in outputs)
    vectors = [_vector(output, body) for output in outputs]
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)],
        "model": model,
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }


def finite_vector(output: EmbeddingRequestOutput) -> NDArray[np.float64]:
    """Raises `ApiError` for non-finite numbers."""
    vector = np.array(output.outputs.embedding, np.float64)
    if not np.isfinite(vector).all():
        raise ApiError(500, "the model computed non-finite numbers for this input", code="not_finite")
    return vector


def _vector(output: EmbeddingRequestOutput, body: EmbeddingBody) -> list[float] | str:
    vector = finite_vector(output)
    if body.dimensions is not None:
        if body.dimensions > len(vector):
            message = f"dimensions={body.dimensions}, but this model's embeddings have {len(vector)}"
            raise ApiError(400, message, param="dimensions")
        vector = vector[: body.dimensions]
        if body.normalize:
            vector = vector / max(float(np.linalg.norm(vector)), np.finfo(np.float64).tiny)
    if body.encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()
