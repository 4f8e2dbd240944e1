"""Host: what the API's description says of bodies that the routes read themselves."""

from typing import Any

from jaxserve.server.openai.requests.base_body import Body


def takes(kind: type[Body]) -> dict[str, Any]:
    """Options of a route whose body is of this kind; what it refers to is where `gather_parts` puts it."""
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    return {"openapi_extra": {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}}


def gather_parts(description: dict[str, Any]) -> None:
    """Move the definitions that came with each body to the place that all share. description: OpenAPI's, changed."""
    parts = description.setdefault("components", {}).setdefault("schemas", {})
    for methods in description["paths"].values():
        for operation in methods.values():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                parts.update(content["schema"].pop("$defs", {}))
