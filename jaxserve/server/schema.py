"""Host: what the API's description says of bodies that the routes read themselves."""

from typing import Any

from jaxserve.server.protocol.base import Body


def takes(kind: type[Body]) -> dict[str, Any]:
    """Options of a route whose body is of this kind."""
    content = {"application/json": {"schema": kind.model_json_schema()}}
    return {"openapi_extra": {"requestBody": {"required": True, "content": content}}}
