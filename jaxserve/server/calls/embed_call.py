"""Host: `embed_call`: embeds the inputs of a validated body and builds the response of /v1/embeddings."""

from typing import Any

from jaxserve.core.options.scheduling_options import SchedulingKwargs
from jaxserve.engine.serving.offload import offload
from jaxserve.server.calls.prompt_inputs import Truncation, read_texts
from jaxserve.server.http.json_response import MAX_INLINE_ITEMS
from jaxserve.server.monitoring.access_log import AccessRecord
from jaxserve.server.openai.requests.embedding_body import EmbeddingBody
from jaxserve.server.openai.responses.embedding_response import embedding_response
from jaxserve.server.server_state import ServerState


async def embed_call(state: ServerState, body: EmbeddingBody, record: AccessRecord) -> dict[str, Any]:
    """Embeds all inputs, batched with other requests; an error in one input fails the request.

    record: receives all outputs.
    """
    name, arrival_s = state.model_name(body.model), state.engine.now()
    state.engine.check_room()
    truncation = None
    if body.truncate_prompt_tokens is not None:
        truncation = Truncation.of_length(body.truncate_prompt_tokens, state.max_model_len, reserved=0)
    prompts = await read_texts(state, body.inputs, add_special_tokens=body.add_special_tokens, truncation=truncation)
    options = SchedulingKwargs(deadline_s=state.config.request_timeout_s)
    outputs = await state.engine.embed(
        prompts, pooling=body.pooling, normalize=body.normalize, arrival_s=arrival_s, **options
    )
    for output in outputs:
        record.note(output)
    num_numbers = sum(len(output.outputs.embedding) for output in outputs)
    return await offload(lambda: embedding_response(outputs, body, name), num_numbers, MAX_INLINE_ITEMS)
