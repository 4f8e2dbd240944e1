"""Host: `ENDPOINTS`: the endpoints that run the model: their paths, bodies, responses, and how they answer."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from jaxserve.server.calls.embed_call import embed_call
from jaxserve.server.calls.generation_call import GenerationCall, chat_call, completion_call
from jaxserve.server.calls.respond import respond
from jaxserve.server.calls.responses_call import responses_call
from jaxserve.server.calls.score_call import rerank_call, score_call
from jaxserve.server.http.disconnect import unless_disconnected
from jaxserve.server.http.error_responses import ApiError, errors_name_field
from jaxserve.server.http.json_response import offloaded_json
from jaxserve.server.http.middleware import caller_of
from jaxserve.server.openai.requests.base_body import Body
from jaxserve.server.openai.requests.chat_body import ChatBody
from jaxserve.server.openai.requests.completion_body import CompletionBody
from jaxserve.server.openai.requests.embedding_body import EmbeddingBody
from jaxserve.server.openai.requests.score_bodies import PAIRS, RerankBody, ScoreBody
from jaxserve.server.openai.responses_api.responses_body import ResponsesBody
from jaxserve.server.openai.schemas.base import Answer
from jaxserve.server.openai.schemas.generated import ChatChunk, ChatResponse, CompletionChunk, CompletionResponse
from jaxserve.server.openai.schemas.others import EmbeddingResponse
from jaxserve.server.openai.schemas.response_event_types import EVENTS
from jaxserve.server.openai.schemas.response_types import ApiResponse
from jaxserve.server.openai.schemas.scores import RerankResponse, ScoreResponse
from jaxserve.server.server_state import ServerState

Respond = Callable[[ServerState, Request, Any], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """signs: fields of which only its bodies have one; the first endpoint whose sign a body has is its own. chunks,
    events: see `describe`."""

    paths: tuple[str, ...]
    description: str
    signs: tuple[str, ...]
    body_type: type[Body]
    respond: Respond
    response: type[Answer]
    chunks: tuple[type[Answer], ...] = ()
    events: tuple[type[Answer], ...] = ()


async def _generate(
    make_call: Callable[..., Awaitable[GenerationCall]], state: ServerState, request: Request, body: Any
) -> Response:
    """The response of an endpoint that generates text."""
    caller = caller_of(request)
    caller.record.model = state.served_model(body.model, body.lora_path).name
    caller.record.request_id = body.request_id or caller.record.request_id
    with errors_name_field(body.prompt_field):
        make = partial(make_call, state, body, caller.record.request_id, caller.client)
        return await respond(state, request, make, caller.record)


async def _embed(
    make_response: Callable[..., Coroutine[Any, Any, dict[str, Any]]], state: ServerState, request: Request, body: Any
) -> Response:
    """The response of an endpoint that makes vectors of texts."""
    record = caller_of(request).record
    record.model = state.served_model(body.model, body.lora_path).name
    with state.active_request(), errors_name_field(body.prompt_field):
        response = await unless_disconnected(request, make_response(state, body, record))
        return await offloaded_json(lambda: response, _num_items(response))


def _num_items(response: Mapping[str, Any]) -> int:
    """How many numbers or texts there are to serialize."""
    return sum(len(each.get("embedding", "1")) for each in response.get("data") or response["results"])


ENDPOINTS = (
    Endpoint(
        ("/v1/completions",), "Complete prompts, whole or in server-sent events.", ("prompt",),
        CompletionBody, partial(_generate, completion_call), CompletionResponse, (CompletionChunk,),
    ),
    Endpoint(
        ("/v1/chat/completions",), "Answer a conversation, whole or in server-sent events.", ("messages",),
        ChatBody, partial(_generate, chat_call), ChatResponse, (ChatChunk,),
    ),
    Endpoint(
        ("/v1/responses",), "Answer items of a conversation by items, whole or in server-sent events.",
        ("instructions", "max_output_tokens", "text", "previous_response_id"),
        ResponsesBody, partial(_generate, responses_call), ApiResponse, events=EVENTS,
    ),
    Endpoint(
        ("/v1/embeddings",), "One vector per text: the mean of its hidden states, or the last one.", ("input",),
        EmbeddingBody, partial(_embed, embed_call), EmbeddingResponse,
    ),
    Endpoint(
        ("/v1/score", "/score"), "The similarity of each pair of texts: the cosine between their embeddings.",
        tuple(left for left, _ in PAIRS), ScoreBody, partial(_embed, score_call), ScoreResponse,
    ),
    Endpoint(
        ("/v1/rerank", "/rerank", "/v2/rerank"), "Documents in the order of their similarity to a query.", ("query",),
        RerankBody, partial(_embed, rerank_call), RerankResponse,
    ),
)  # fmt: skip


def read_any(body: Any) -> tuple[Endpoint, Body]:
    """The endpoint that a body is for, by its fields, and the validated body."""
    names: Mapping[str, Any] = cast(dict[str, Any], body) if isinstance(body, dict) else {}
    for endpoint in ENDPOINTS:
        if any(sign in names for sign in endpoint.signs):
            return endpoint, endpoint.body_type.read(body)
    signs = ", ".join(dict.fromkeys(sign for endpoint in ENDPOINTS for sign in endpoint.signs))
    raise ApiError(400, f"the body belongs to no endpoint: send an object with one of {signs}")
