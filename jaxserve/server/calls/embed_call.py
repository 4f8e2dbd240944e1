"""Host: `embed_call`: embeds the inputs of a validated body and builds the response of /v1/embeddings."""

from typing import Any

from jaxserve.engine.serving.offload import offload
from jaxserve.server.calls.embed_prompts import embed_prompts, num_numbers, read_inputs
from jaxserve.server.http.json_response import MAX_INLINE_ITEMS
from jaxserve.server.monitoring.access_log import AccessRecord
from jaxserve.server.openai.requests.embedding_body import EmbeddingBody
from jaxserve.server.openai.responses.embedding_response import embedding_response
from jaxserve.server.server_state import ServerState


async def embed_call(state: ServerState, body: EmbeddingBody, record: AccessRecord) -> dict[str, Any]:
    """Embeds all inputs, batched with other requests; an error in one input fails the request.

    record: receives all outputs.
    """
    model, arrival_s = state.served_model(body.model, body.lora_path), state.engine.now()
    state.engine.check_room()
    prompts = await read_inputs(state, body, body.inputs)
    outputs = await embed_prompts(state, body, model.adapter, prompts, record, arrival_s, normalize=body.normalize)
    return await offload(lambda: embedding_response(outputs, body, model.name), num_numbers(outputs), MAX_INLINE_ITEMS)
