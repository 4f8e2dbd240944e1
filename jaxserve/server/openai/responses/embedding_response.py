"""Host: what /v1/embeddings sends."""

import base64
from typing import Any

import numpy as np

from jaxserve.core.outputs import EmbeddingRequestOutput
from jaxserve.server.calls.prompt_inputs import Truncation, completion_prompts
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.http.offload import offload
from jaxserve.server.monitoring.access_log import AccessRecord
from jaxserve.server.openai.requests.embedding_body import EmbeddingBody
from jaxserve.server.server_state import ServerState


async def embedding_answer(service: ServerState, body: EmbeddingBody, served: AccessRecord) -> dict[str, Any]:
    """Embed all inputs, in one batch with whatever else runs; the first error ends all of them.

    served: is told of all outputs.
    """
    name, arrival_s, limit_s = service.name_of(body.model), service.llm.now(), service.config.request_timeout_s
    service.llm.client.check_room(len(body.inputs))
    keep = None
    if body.truncate_prompt_tokens is not None:
        keep = Truncation.of_length(body.truncate_prompt_tokens, service.max_model_len, needed=0)
    prompts = await completion_prompts(service, body.inputs, add_special_tokens=body.add_special_tokens, keep=keep)
    options: Any = {"pooling": body.pooling, "normalize": body.normalize, "deadline_s": limit_s}
    outputs = await service.llm.client.embed(prompts, arrival_s=arrival_s, **options)
    for output in outputs:
        served.note(output)
    num_tokens = sum(len(output.prompt_token_ids) for output in outputs)
    num_numbers = sum(len(output.outputs.embedding) for output in outputs)
    vectors = await offload(lambda: [_vector(output, body) for output in outputs], num_numbers)
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)],
        "model": name,
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }


def _vector(output: EmbeddingRequestOutput, body: EmbeddingBody) -> list[float] | str:
    vector = np.array(output.outputs.embedding, np.float64)
    if not np.isfinite(vector).all():
        raise ApiError(500, "the model's numbers were not finite for this input", code="not_finite")
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
