"""Host: the routes of OpenAI's API: completions, chats, embeddings and the list of models."""

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jaxserve.server.answers.embedding import embedding_answer
from jaxserve.server.aside import json_aside
from jaxserve.server.body import read_body
from jaxserve.server.calls import chat_call, completion_call
from jaxserve.server.generate import Json, respond
from jaxserve.server.gone import unless_gone
from jaxserve.server.guard import caller
from jaxserve.server.protocol.chat import ChatBody
from jaxserve.server.protocol.completions import CompletionBody
from jaxserve.server.protocol.embeddings import EmbeddingBody
from jaxserve.server.schema import takes
from jaxserve.server.service import Service


def routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/completions", **takes(CompletionBody))
    async def completions(request: Request) -> Response:
        """Complete prompts, whole or in server-sent events."""
        body, who = await read_body(request, CompletionBody, service.config), caller(request)
        who.served.model = service.name_of(body.model)
        call = await completion_call(service, body, body.request_id or who.request_id, who.client)
        return await respond(service, request, call, who.served)

    @router.post("/v1/chat/completions", **takes(ChatBody))
    async def chat_completions(request: Request) -> Response:
        """Answer a conversation, whole or in server-sent events."""
        body, who = await read_body(request, ChatBody, service.config), caller(request)
        who.served.model = service.name_of(body.model)
        call = await chat_call(service, body, body.request_id or who.request_id, who.client)
        return await respond(service, request, call, who.served)

    @router.post("/v1/embeddings", **takes(EmbeddingBody))
    async def embeddings(request: Request) -> Response:
        """One vector a text: the mean of its hidden states, or the last one."""
        body = await read_body(request, EmbeddingBody, service.config)
        with service.working():
            answer = await unless_gone(request, embedding_answer(service, body))
            return await json_aside(lambda: answer, sum(len(each["embedding"]) for each in answer["data"]))

    @router.get("/v1/models")
    async def models() -> Response:
        """The one model, under each of its names."""
        return Json({"object": "list", "data": [_model(service, name) for name in service.names]})

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        return Json(_model(service, service.name_of(name)))

    return router


def _model(service: Service, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "jaxserve",
        "root": service.names[0],
        "parent": None,
        "max_model_len": service.max_model_len,
    }
