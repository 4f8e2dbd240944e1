"""Host: the routes of OpenAI's API: completions, chats, embeddings and the list of models."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jaxserve.server.calls.embed_call import embed_call
from jaxserve.server.calls.generation_call import GenerationCall, chat_call, completion_call
from jaxserve.server.calls.respond import respond
from jaxserve.server.http.body_reader import read_body
from jaxserve.server.http.disconnect import unless_disconnected
from jaxserve.server.http.error_responses import errors_name_field
from jaxserve.server.http.json_response import Json, offloaded_json
from jaxserve.server.http.middleware import caller_of
from jaxserve.server.openai.requests.base_body import Body, describe_body
from jaxserve.server.openai.requests.chat_body import ChatBody
from jaxserve.server.openai.requests.completion_body import CompletionBody
from jaxserve.server.openai.requests.embedding_body import EmbeddingBody
from jaxserve.server.server_state import ServerState

GENERATION_ROUTES: tuple[tuple[str, type[Body], Callable[..., Awaitable[GenerationCall]], str], ...] = (
    ("/v1/completions", CompletionBody, completion_call, "Complete prompts, whole or in server-sent events."),
    ("/v1/chat/completions", ChatBody, chat_call, "Answer a conversation, whole or in server-sent events."),
)


def routes(state: ServerState) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    for path, body_type, make_call, text in GENERATION_ROUTES:
        router.post(path, description=text, **describe_body(body_type))(_generation_route(state, body_type, make_call))

    @router.post("/v1/embeddings", **describe_body(EmbeddingBody))
    async def embeddings(request: Request) -> Response:
        """One vector per text: the mean of its hidden states, or the last one."""
        body = await read_body(request, EmbeddingBody.read, state.config)
        record = caller_of(request).record
        record.model = state.model_name(body.model)
        with state.active_request(), errors_name_field(body.prompt_field):
            response = await unless_disconnected(request, embed_call(state, body, record))
            return await offloaded_json(lambda: response, sum(len(each["embedding"]) for each in response["data"]))

    @router.get("/v1/models")
    async def models() -> Response:
        """The one model, under each of its names."""
        return Json({"object": "list", "data": [_model(state, name) for name in state.model_names]})

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        return Json(_model(state, state.model_name(name)))

    return router


def _generation_route(
    state: ServerState, body_type: type[Body], make_call: Callable[..., Awaitable[GenerationCall]]
) -> Callable[[Request], Awaitable[Response]]:
    """The handler of an endpoint that generates text."""

    async def answer(request: Request) -> Response:
        body: Any = await read_body(request, body_type.read, state.config)
        caller = caller_of(request)
        caller.record.model = state.model_name(body.model)
        caller.record.request_id = body.request_id or caller.record.request_id
        with errors_name_field(body_type.prompt_field):
            make = partial(make_call, state, body, caller.record.request_id, caller.client)
            return await respond(state, request, make, caller.record)

    return answer


def _model(state: ServerState, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": state.created,
        "owned_by": "jaxserve",
        "root": state.model_names[0],
        "parent": None,
        "max_model_len": state.max_model_len,
    }
