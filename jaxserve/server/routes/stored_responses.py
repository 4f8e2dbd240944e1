"""Host: the routes of stored responses: read and delete one, and list the items that it was made of."""

from collections.abc import Collection, Mapping
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jaxserve.server.http.error_responses import ApiError
from jaxserve.server.http.json_response import Json
from jaxserve.server.http.middleware import caller_of
from jaxserve.server.openai.requests.field_policy import unknown_field
from jaxserve.server.openai.schemas.response_types import ApiResponse
from jaxserve.server.openai.schemas.stored_response_types import DeletedResponse, StoredItems
from jaxserve.server.routes.description import describe
from jaxserve.server.server_state import ServerState

MAX_LIMIT, DEFAULT_LIMIT = 100, 20
PAGING = ("after", "limit", "order")
PATH = "/v1/responses/{response_id}"


def routes(state: ServerState) -> APIRouter:
    router, stored = APIRouter(tags=["OpenAI"]), state.responses

    @router.get(PATH, **describe(ApiResponse, statuses=(404,)))
    async def read(request: Request, response_id: str) -> Response:
        """A stored response."""
        _check_query(request, ())
        return Json(stored.response(caller_of(request).client, response_id))

    @router.delete(PATH, **describe(DeletedResponse, statuses=(404,)))
    async def delete(request: Request, response_id: str) -> Response:
        """Delete a stored response."""
        _check_query(request, ())
        stored.delete(caller_of(request).client, response_id)
        return Json({"id": response_id, "object": "response", "deleted": True})

    @router.get(f"{PATH}/input_items", **describe(StoredItems, statuses=(404,)))
    async def input_items(request: Request, response_id: str) -> Response:
        """The items that a stored response was made of: those after the id `after`, at most `limit` (20; up to 100), in
        the `order` "desc" (the default) or "asc"."""
        _check_query(request, PAGING)
        return Json(_page(stored.items(caller_of(request).client, response_id), request.query_params))

    return router


def _check_query(request: Request, known: Collection[str]) -> None:
    for name in request.query_params:
        if name not in known:
            raise unknown_field(name, known)


def _page(items: list[Any], query: Mapping[str, str]) -> dict[str, Any]:
    limit, order, after = query.get("limit", str(DEFAULT_LIMIT)), query.get("order", "desc"), query.get("after")
    if not (limit.isascii() and limit.isdigit() and len(limit) < 10 and 1 <= int(limit) <= MAX_LIMIT):
        raise ApiError(400, f"limit must be from 1 to {MAX_LIMIT}", param="limit")
    if order not in ("asc", "desc"):
        raise ApiError(400, 'order must be "asc" or "desc"', param="order")
    listed = items if order == "asc" else items[::-1]
    if after is not None:
        index = next((i for i, item in enumerate(listed) if item["id"] == after), None)
        if index is None:
            raise ApiError(400, f"after={after[:200]!r} is the id of no item", param="after")
        listed = listed[index + 1 :]
    page = listed[: int(limit)]
    ids = [item["id"] for item in page] or [""]
    has_more = len(listed) > len(page)
    return {"object": "list", "data": page, "first_id": ids[0], "last_id": ids[-1], "has_more": has_more}
