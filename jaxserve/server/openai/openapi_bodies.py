"""Host: the OpenAPI description of request bodies, which routes read themselves instead of through FastAPI."""

from typing import Any

from jaxserve.server.openai.requests.base_body import Body


def describe_body(body_type: type[Body]) -> dict[str, Any]:
    """Route options that describe its body; `gather_definitions` moves the definitions to where the schema refers."""
    schema = body_type.model_json_schema(ref_template="#/components/schemas/{model}")
    return {"openapi_extra": {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}}


def gather_definitions(description: dict[str, Any]) -> None:
    """Move each body's definitions into the shared components. description: the OpenAPI description, modified."""
    schemas = description.setdefault("components", {}).setdefault("schemas", {})
    for methods in description["paths"].values():
        for operation in methods.values():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                schemas.update(content["schema"].pop("$defs", {}))
