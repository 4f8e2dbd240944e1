"""Host: the routes that load and unload adapters while the server runs; they need the admin key."""

import asyncio
import logging

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from jaxserve.core.errors import RequestError
from jaxserve.core.options.lora_request import Adapter, LoRARequest
from jaxserve.engine.inputs.request_adapters import Adapters
from jaxserve.server.http.auth import ApiKeys
from jaxserve.server.http.body_reader import read_body
from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.openai.requests.adapter_bodies import LoadAdapterBody, UnloadAdapterBody
from jaxserve.server.routes.allowed_paths import allowed_path
from jaxserve.server.routes.description import describe
from jaxserve.server.server_state import ServerState

log = logging.getLogger("jaxserve.server")


def routes(state: ServerState) -> APIRouter:
    router, keys = APIRouter(tags=["admin"]), ApiKeys(state.config)

    @router.post("/v1/load_lora_adapter", **describe(media_type="text/plain", bodies=(LoadAdapterBody,), is_admin=True))
    async def load_lora_adapter(request: Request) -> Response:
        """Load an adapter, by whose name requests may call it as their model from then on."""
        keys.check_admin(request.headers)
        adapters = _adapters(state)
        body = await read_body(request, LoadAdapterBody.read, state.config)
        name, path = body.lora_name or "", body.lora_path or ""
        if name in state.model_names:
            raise ApiError(400, f"lora_name: '{name}' is a name of the server's model", param="lora_name")
        if not body.load_inplace and adapters.find(name) is not None:
            message = f"The lora adapter '{name}' has already been loaded. To replace it, set 'load_inplace' to True."
            raise ApiError(400, message, param="lora_name")

        def load() -> Adapter:
            found = allowed_path(path, state.config)
            return adapters.load(LoRARequest(name, found), in_place=body.load_inplace)

        try:
            adapter = await asyncio.to_thread(load)
        except RequestError as error:
            if error.param == "lora_name":
                raise ApiError(400, str(error), param="lora_name") from error
            raise ApiError(400, f"lora_path: {error}", param="lora_path") from error
        log.info("adapter %s loaded from %s, rank %d", name, adapter.request.lora_path, adapter.rank)
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    @router.post(
        "/v1/unload_lora_adapter", **describe(media_type="text/plain", bodies=(UnloadAdapterBody,), is_admin=True)
    )
    async def unload_lora_adapter(request: Request) -> Response:
        """Unload an adapter; requests that were admitted before keep it."""
        keys.check_admin(request.headers)
        adapters = _adapters(state)
        body = await read_body(request, UnloadAdapterBody.read, state.config)
        name = _find(adapters, body).name
        try:
            await asyncio.to_thread(adapters.unload, name)
        except RequestError as error:
            raise _not_found(body, "lora_name") from error
        log.info("adapter %s unloaded", name)
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    return router


def _adapters(state: ServerState) -> Adapters:
    adapters = state.engine.adapters
    if not adapters.is_enabled:
        raise ApiError(403, "this route is off: start the server with --enable-lora", code="no_lora")
    return adapters


def _find(adapters: Adapters, body: UnloadAdapterBody) -> Adapter:
    """The adapter with the body's name and number, as far as they are given."""
    named = [adapter for adapter in adapters if (body.lora_name or adapter.name) == adapter.name]
    for adapter in named:
        if body.lora_int_id in (None, adapter.request.lora_int_id or adapter.adapter_id):
            return adapter
    raise _not_found(body, "lora_int_id" if named or not body.lora_name else "lora_name")


def _not_found(body: UnloadAdapterBody, param: str) -> ApiError:
    shown = (body.lora_name or str(body.lora_int_id))[:200]
    return ApiError(404, f"The lora adapter '{shown}' cannot be found.", param=param)
