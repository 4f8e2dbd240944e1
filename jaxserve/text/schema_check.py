"""Host: `check_schema`: checks a value against a JSON schema, and names the first part that it does not allow."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from jaxserve.core.did_you_mean import MAX_NAME_CHARS, did_you_mean
from jaxserve.core.errors import RequestError

NAMES = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "integer": "an integer",
    "boolean": "true or false",
    "null": "null",
}


def check_schema(value: Any, schema: Mapping[str, Any], path: str) -> None:
    """Raises `RequestError` whose message and `param` have the path, as in `messages[3].content[0].text`.

    schema: with the keywords type, anyOf (of different types), enum, properties, required, additionalProperties (as
    False), items, minItems and maxItems. Work ends at the first fault.
    """
    kinds: list[Mapping[str, Any]] = schema.get("anyOf", [schema])
    kind = next((each for each in kinds if "type" not in each or _is(value, each["type"])), None)
    if kind is None:
        expected = " or ".join(NAMES[each["type"]] for each in kinds)
        found = "null" if value is None else type(value).__name__
        raise RequestError(f"{path} must be {expected}, not {found}", path)
    if "enum" in kind and value not in kind["enum"]:
        known = ", ".join(map(repr, kind["enum"]))
        raise RequestError(f"{path} is {value[:MAX_NAME_CHARS]!r}, which is not supported; known: {known}", path)
    if "items" in kind:
        _check_items(value, kind, path)
    if "properties" in kind:
        _check_properties(value, kind, path)


def _is(value: Any, kind: str) -> bool:
    match kind:
        case "object":
            return isinstance(value, Mapping)
        case "array":
            return isinstance(value, Sequence) and not isinstance(value, str | bytes)
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case _:
            return value is None


def _check_items(items: Sequence[Any], schema: Mapping[str, Any], path: str) -> None:
    low, high = schema.get("minItems", 0), schema.get("maxItems")
    if len(items) < low or (high is not None and len(items) > high):
        bounds = f"at least {low} is needed" if len(items) < low else f"at most {high} are allowed"
        raise RequestError(f"{path} holds {len(items)} items; {bounds}", path)
    for i, item in enumerate(items):
        check_schema(item, schema["items"], f"{path}[{i}]")


def _check_properties(value: Mapping[Any, Any], schema: Mapping[str, Any], path: str) -> None:
    properties = cast(Mapping[str, Any], schema["properties"])
    for name, kind in properties.items():  # before unknown ones: a part's type explains its other fields
        if name in value:
            check_schema(value[name], kind, f"{path}.{name}")
    for name in value:
        if name not in properties:
            shown = str(name)[:MAX_NAME_CHARS]
            raise RequestError(f"unknown field {path}.{shown}{did_you_mean(shown, properties)}", f"{path}.{shown}")
    for name in schema["required"]:
        if name not in value:
            raise RequestError(f"{path}.{name} is missing", f"{path}.{name}")
