"""Host: `checked_tools`: validates the tools that a request offers, and converts them to the form of chat templates."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from jaxserve.core.errors import RequestError
from jaxserve.text.schema_check import check_schema

MAX_TOOLS = 128  # OpenAI's limit
MAX_CHARS = 1 << 17  # of all tools as JSON
MAX_DEPTH = 100  # of lists and objects in each other
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}

_TEXT, _NULL = {"type": "string"}, {"type": "null"}
_ANY_OBJECT = {"type": "object", "additionalProperties": True}
_FUNCTION: dict[str, Any] = {
    "type": "object",
    "title": "FunctionDefinition",
    "properties": {
        "name": _TEXT,
        "description": {"anyOf": [_TEXT, _NULL]},
        "parameters": {"anyOf": [_ANY_OBJECT, _NULL]},
        "strict": {"anyOf": [{"type": "boolean"}, _NULL]},
        "return": {"anyOf": [_ANY_OBJECT, _NULL]},  # transformers describes results, too
    },
    "required": ["name"],
    "additionalProperties": False,
}
TOOLS_SCHEMA: dict[str, Any] = {
    "type": "array",
    "maxItems": MAX_TOOLS,
    "items": {
        "type": "object",
        "title": "Tool",
        "properties": {"type": {"type": "string", "enum": ["function"]}, "function": _FUNCTION},
        "required": ["type", "function"],
        "additionalProperties": False,
    },
}
NONE, AUTO, REQUIRED = "none", "auto", "required"
_NAMED: dict[str, Any] = {
    "type": "object",
    "title": "FunctionName",
    "properties": {"name": _TEXT},
    "required": ["name"],
    "additionalProperties": False,
}
CHOICE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "enum": [NONE, AUTO, REQUIRED]},
        {
            "type": "object",
            "title": "NamedToolChoice",
            "properties": {"type": {"type": "string", "enum": ["function"]}, "function": _NAMED},
            "required": ["type", "function"],
            "additionalProperties": False,
        },
    ]
}


def checked_tools(tools: Any) -> list[dict[str, Any]]:
    """New tools, each a function with a name and the schema of its parameters. None is an empty list.

    Functions without parameters get a schema that allows none. `strict`, which no template was trained with, is left
    out. Raises `RequestError` with the path of what is invalid, as in `tools[3].function.name`.
    """
    if tools is None:
        return []
    check_schema(tools, TOOLS_SCHEMA, "tools")
    found: list[dict[str, Any]] = []
    for i, tool in enumerate(cast(Sequence[Mapping[str, Any]], tools)):
        function = {key: value for key, value in tool["function"].items() if value is not None and key != "strict"}
        if not NAME.fullmatch(function["name"]):
            message = f"tools[{i}].function.name must be 1 to 128 letters, digits, '_', '-' or '.'"
            raise RequestError(message, f"tools[{i}].function.name")
        found.append({"type": "function", "function": {**function, "parameters": _parameters(function)}})
    names = [tool["function"]["name"] for tool in found]
    if len(set(names)) < len(names):
        (i, name), *_ = [(i, name) for i, name in enumerate(names) if name in names[:i]]
        raise RequestError(f"tools[{i}].function.name {name!r} is that of another tool", f"tools[{i}].function.name")
    _check_json(found)
    return found


def _parameters(function: Mapping[str, Any]) -> Mapping[str, Any]:
    return function.get("parameters") or NO_PARAMETERS


def _check_json(tools: list[dict[str, Any]]) -> None:
    level: list[Any] = [tools]
    for _ in range(MAX_DEPTH):
        level = [item for value in level for item in _items(value)]
        if len(level) > MAX_CHARS:
            raise RequestError(f"tools have more than {MAX_CHARS} characters of JSON", "tools")
    if level:
        raise RequestError(f"tools are nested more than {MAX_DEPTH} levels deep", "tools")
    try:
        num_chars = len(json.dumps(tools, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise RequestError(f"tools must be JSON: {error}"[:300], "tools") from None
    if num_chars > MAX_CHARS:
        raise RequestError(f"tools have {num_chars} characters of JSON; at most {MAX_CHARS} are allowed", "tools")


def _items(value: Any) -> Iterable[Any]:
    """What a list or an object holds."""
    if isinstance(value, Mapping):
        return cast(Mapping[Any, Any], value).values()
    return cast(Sequence[Any], value) if isinstance(value, list | tuple) else ()
