"""Host: `score_call` and `rerank_call`: compare texts by the angle between their embeddings."""

from typing import Any

from jaxserve.core.options.lora_request import Adapter
from jaxserve.engine.serving.offload import offload
from jaxserve.server.calls.embed_prompts import embed_prompts, num_numbers, read_inputs
from jaxserve.server.http.error_responses import errors_name_field
from jaxserve.server.http.json_response import MAX_INLINE_ITEMS
from jaxserve.server.monitoring.access_log import AccessRecord
from jaxserve.server.openai.requests.score_bodies import RerankBody, ScoreBody
from jaxserve.server.openai.responses.envelope import Envelope
from jaxserve.server.openai.responses.score_response import Outputs, rerank_response, score_response
from jaxserve.server.server_state import ServerState


async def score_call(state: ServerState, body: ScoreBody, record: AccessRecord) -> dict[str, Any]:
    """Scores each pair of texts; an error in one text fails the request. record: receives all outputs."""
    model = state.served_model(body.model, body.lora_path)
    envelope = Envelope(f"score-{record.request_id}", model.name)
    first, second = await _embed_sides(state, body, model.adapter, body.names, body.sides, record)
    size = num_numbers((*first, *second))
    return await offload(lambda: score_response(first, second, envelope), size, MAX_INLINE_ITEMS)


async def rerank_call(state: ServerState, body: RerankBody, record: AccessRecord) -> dict[str, Any]:
    """Ranks documents by their similarity to a query. record: receives all outputs."""
    model = state.served_model(body.model, body.lora_path)
    envelope, texts = Envelope(f"rerank-{record.request_id}", model.name), body.texts
    names, sides = ("query", "documents"), ([body.query], texts)
    (query,), documents = await _embed_sides(state, body, model.adapter, names, sides, record)

    def response() -> dict[str, Any]:
        shown = texts if body.return_documents else None
        return rerank_response(query, documents, envelope, texts=shown, top_n=body.top_n)

    return await offload(response, num_numbers(documents), MAX_INLINE_ITEMS)


async def _embed_sides(
    state: ServerState,
    body: ScoreBody | RerankBody,
    adapter: Adapter | None,
    names: tuple[str, str],
    sides: tuple[list[str], list[str]],
    record: AccessRecord,
) -> tuple[Outputs, Outputs]:
    """Vectors of length 1 of two sides, all in one batch. names: the fields that hold the sides, for errors."""
    arrival_s = state.engine.now()
    state.engine.check_room()
    first, second = sides
    with errors_name_field(names[0]):
        prompts = await read_inputs(state, body, first)
    with errors_name_field(names[1]):
        prompts += await read_inputs(state, body, second)
        outputs = await embed_prompts(state, body, adapter, prompts, record, arrival_s, normalize=True)
    return outputs[: len(first)], outputs[len(first) :]
