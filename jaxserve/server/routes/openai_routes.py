"""Host: the routes that run the model, under OpenAI's paths and those of other servers, and the list of models."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jaxserve.server.http.body_reader import read_body
from jaxserve.server.http.json_response import Json
from jaxserve.server.monitoring.load_report import load_headers
from jaxserve.server.openai.requests.base_body import Body
from jaxserve.server.openai.schemas.others import Model, ModelList
from jaxserve.server.routes.description import describe
from jaxserve.server.routes.endpoints import ENDPOINTS, Endpoint, read_any
from jaxserve.server.server_state import ServedModel, ServerState

Route = Callable[[Request], Awaitable[Response]]


def routes(state: ServerState) -> APIRouter:
    router = APIRouter(tags=["OpenAI"])

    for endpoint in ENDPOINTS:
        options = describe(
            endpoint.response,
            bodies=(endpoint.body_type,),
            chunks=endpoint.chunks,
            events=endpoint.events,
            statuses=(429,),
        )
        for path in endpoint.paths:
            router.post(path, description=endpoint.description, **options)(_route(state, endpoint))

    @router.post(
        "/invocations",
        **describe(
            *(endpoint.response for endpoint in ENDPOINTS),
            bodies=[endpoint.body_type for endpoint in ENDPOINTS],
            chunks=[chunk for endpoint in ENDPOINTS for chunk in endpoint.chunks],
            events=[event for endpoint in ENDPOINTS for event in endpoint.events],
            statuses=(429,),
        ),
    )
    async def invocations(request: Request) -> Response:
        """Any of these requests, told apart by their fields, for SageMaker."""
        endpoint, body = await read_body(request, read_any, state.config)
        return await _respond(state, request, endpoint, body)

    @router.get("/v1/models", **describe(ModelList, statuses=(503,)))
    async def models() -> Response:
        """The one model, under each of its names, and its adapters."""
        served = [*map(ServedModel, state.model_names), *(ServedModel(each.name, each) for each in state.adapters)]
        return Json({"object": "list", "data": [_model(state, model) for model in served]})

    @router.get("/v1/models/{name:path}", **describe(Model, statuses=(404, 503)))
    async def model(name: str) -> Response:
        """The model under one of its names, or an adapter."""
        return Json(_model(state, state.served_model(name)))

    return router


def _route(state: ServerState, endpoint: Endpoint) -> Route:
    async def answer(request: Request) -> Response:
        body = await read_body(request, endpoint.body_type.read, state.config)
        return await _respond(state, request, endpoint, body)

    return answer


async def _respond(state: ServerState, request: Request, endpoint: Endpoint, body: Body) -> Response:
    response = await endpoint.respond(state, request, body)
    response.headers.update(load_headers(request.headers, state.engine))
    return response


def _model(state: ServerState, model: ServedModel) -> dict[str, Any]:
    adapter = model.adapter
    return {
        "id": model.name,
        "object": "model",
        "created": state.created,
        "owned_by": "jaxserve",
        "root": state.model_names[0] if adapter is None else adapter.request.lora_path,
        "parent": None if adapter is None else state.parent(adapter),
        "max_model_len": state.max_model_len,
    }
