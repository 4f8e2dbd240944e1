"""Host: the routes of OpenAI's API: completions, chats, embeddings and the list of models."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jaxserve.server.calls.generation_call import GenerationCall, chat_call, completion_call
from jaxserve.server.calls.respond import Json, respond
from jaxserve.server.http.body_reader import read_body
from jaxserve.server.http.disconnect import unless_gone
from jaxserve.server.http.error_responses import blaming
from jaxserve.server.http.middleware import caller
from jaxserve.server.http.offload import json_aside
from jaxserve.server.openai.openapi_bodies import takes
from jaxserve.server.openai.requests.base_body import Body
from jaxserve.server.openai.requests.chat_body import ChatBody
from jaxserve.server.openai.requests.completion_body import CompletionBody
from jaxserve.server.openai.requests.embedding_body import EmbeddingBody
from jaxserve.server.openai.responses.embedding_response import embedding_answer
from jaxserve.server.server_state import ServerState

GENERATING: tuple[tuple[str, type[Body], Callable[..., Awaitable[GenerationCall]], str], ...] = (
    ("/v1/completions", CompletionBody, completion_call, "Complete prompts, whole or in server-sent events."),
    ("/v1/chat/completions", ChatBody, chat_call, "Answer a conversation, whole or in server-sent events."),
)


def routes(service: ServerState) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    for path, kind, make_call, text in GENERATING:
        answers = _answers(service, kind, make_call)
        router.post(path, description=text, **takes(kind))(answers)

    @router.post("/v1/embeddings", **takes(EmbeddingBody))
    async def embeddings(request: Request) -> Response:
        """One vector a text: the mean of its hidden states, or the last one."""
        body = await read_body(request, EmbeddingBody, service.config)
        served = caller(request).served
        served.model = service.name_of(body.model)
        with service.working(), blaming(body.prompt_field):
            answer = await unless_gone(request, embedding_answer(service, body, served))
            return await json_aside(lambda: answer, sum(len(each["embedding"]) for each in answer["data"]))

    @router.get("/v1/models")
    async def models() -> Response:
        """The one model, under each of its names."""
        return Json({"object": "list", "data": [_model(service, name) for name in service.names]})

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        return Json(_model(service, service.name_of(name)))

    return router


def _answers(
    service: ServerState, kind: type[Body], make_call: Callable[..., Awaitable[GenerationCall]]
) -> Callable[[Request], Awaitable[Response]]:
    """The handler of a surface that generates text."""

    async def answer(request: Request) -> Response:
        body: Any = await read_body(request, kind, service.config)
        who = caller(request)
        who.served.model = service.name_of(body.model)
        who.served.request_id = body.request_id or who.served.request_id
        with blaming(kind.prompt_field):
            call = partial(make_call, service, body, who.served.request_id, who.client)
            return await respond(service, request, call, who.served)

    return answer


def _model(service: ServerState, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "jaxserve",
        "root": service.names[0],
        "parent": None,
        "max_model_len": service.max_model_len,
    }
