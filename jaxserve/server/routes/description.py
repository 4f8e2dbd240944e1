"""Host: what /openapi.json says of each route: its body, responses and errors; `complete` adds what all share."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Union

from pydantic import TypeAdapter
from starlette.responses import Response

from jaxserve.server.openai.requests.base_body import Body
from jaxserve.server.openai.schemas.base import Answer, ErrorResponse
from jaxserve.server.server_config import ServerConfig

REFERENCE = "#/components/schemas/{model}"
EVENTS = "text/event-stream"
SHARED_STATUSES = (400, 403, 431, 500)  # bad or foreign Host, long headers, unexpected failures: of every route
BODY_STATUSES = (404, 408, 413, 415, 503)  # unknown model, late, long or other bodies, no engine yet
ADMIN_STATUSES = (401, 403)
SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "Authorization: Bearer KEY"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "X-API-Key: KEY"},
    "basic": {"type": "http", "scheme": "basic", "description": "any user, with the key as password"},
}
KEY: list[dict[str, list[str]]] = [{name: []} for name in SECURITY_SCHEMES]
ADMIN_KEY: list[dict[str, list[str]]] = [{"bearer": []}, {"header": []}]  # browsers attach Basic to any request


def describe(
    *responses: type[Answer],
    bodies: Sequence[type[Body]] = (),
    chunks: Sequence[type[Answer]] = (),
    events: Sequence[type[Answer]] = (),
    media_type: str | None = None,
    statuses: Sequence[int] = (),
    is_admin: bool = False,
) -> dict[str, Any]:
    """Options of a route.

    responses, bodies: one of these types. chunks: of a stream, each the data of an event. events: likewise, of a stream
    that has neither errors nor a `[DONE]`, since its last event says how it ended. media_type: of a response that is
    not JSON. statuses: of errors, in addition to those that follow from the other arguments.
    """
    success: dict[str, Any] = {"description": "Success"}
    if responses:
        success["model"] = _union(responses)
    if media_type is not None:
        text = {"type": "string"}
        success["content"] = {media_type: {"schema": _event(text) if media_type == EVENTS else text}}
    if chunks or events:
        content = _schema((*chunks, *((ErrorResponse,) if chunks else ()), *events))
        definitions = content.pop("$defs")
        data = {"type": "string", "contentMediaType": "application/json", "contentSchema": content}
        event = _event({"anyOf": [data, {"const": "[DONE]"}]} if chunks else data)
        success["content"] = {EVENTS: {"schema": event | {"$defs": definitions}}}
    errors = {*SHARED_STATUSES, *statuses, *(BODY_STATUSES if bodies else ()), *(ADMIN_STATUSES if is_admin else ())}
    extra: dict[str, Any] = {"security": ADMIN_KEY} if is_admin else {}
    if bodies:
        extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": _schema(bodies)}}}
    return {
        "responses": {200: success, **{status: _error(status) for status in sorted(errors)}},
        "response_class": Response,
        "openapi_extra": extra,
    }


def complete(description: dict[str, Any], config: ServerConfig) -> None:
    """Adds definitions, keys and their errors; removes FastAPI's own validation errors, which this server has not.

    description: modified.
    """
    schemas = description.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    description["components"]["securitySchemes"] = SECURITY_SCHEMES
    for path, operations in description["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            if config.api_key and path not in config.public_paths:
                operation.setdefault("security", KEY)
                error = {"application/json": {"schema": {"$ref": REFERENCE.format(model="ErrorResponse")}}}
                unauthorized = {"description": HTTPStatus(401).phrase, "content": error}
                operation["responses"].setdefault("401", unauthorized)
            contents = [each.get("content", {}) for each in operation["responses"].values()]
            for content in (*contents, operation.get("requestBody", {}).get("content", {})):
                for part in content.values():
                    schemas.update(part.get("schema", {}).pop("$defs", {}))


def _schema(types: Sequence[type[Body] | type[Answer]]) -> dict[str, Any]:
    """One of these types, with the definitions that it refers to in `$defs`."""
    return TypeAdapter[Any](_union(types)).json_schema(ref_template=REFERENCE)


def _event(data: dict[str, Any]) -> dict[str, Any]:
    """One event with such data. Validators apply the schema of a stream to each of its events."""
    return {"type": "object", "properties": {"data": data}, "required": ["data"]}


def _union(types: Sequence[Any]) -> Any:
    union: Any = Union
    return union[tuple(types)]


def _error(status: int) -> dict[str, Any]:
    return {"model": ErrorResponse, "description": HTTPStatus(status).phrase}
