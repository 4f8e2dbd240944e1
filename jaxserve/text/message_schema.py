"""Host: `conversation_schema`: the JSON schema of a list of messages, which checks it and describes it to clients."""

from collections.abc import Collection
from typing import Any

MAX_MESSAGES = 4096
ROLES = ("system", "developer", "user", "assistant", "tool")
PART_TYPES = ("text", "input_text", "output_text")
REASONING = ("reasoning_content", "thinking", "reasoning")  # names used by servers; templates read the first two


def conversation_schema(roles: Collection[str] = (), fields: Collection[str] = ()) -> dict[str, Any]:
    """roles, fields: those of messages that a chat template reads beyond the common ones, with any values."""
    own: dict[str, Any] = {name: {} for name in sorted(fields)}
    known_roles = [*ROLES, *sorted(set(roles) - set(ROLES))]
    message = _object("Message", {**own, "role": {"type": "string", "enum": known_roles}, **_COMMON}, "role")
    return {"type": "array", "minItems": 1, "maxItems": MAX_MESSAGES, "items": message}


def _object(title: str, properties: dict[str, Any], *required: str) -> dict[str, Any]:
    closed = {"required": list(required), "additionalProperties": False}
    return {"type": "object", "title": title, "properties": properties, **closed}


def _or_null(*kinds: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [*kinds, NULL]}


NULL = {"type": "null"}
TEXT = {"type": "string"}
_PART = _object("TextPart", {"type": {"type": "string", "enum": list(PART_TYPES)}, "text": TEXT}, "type", "text")
_FUNCTION = _object(
    "FunctionCall",
    {"name": TEXT, "arguments": _or_null(TEXT, {"type": "object", "additionalProperties": True})},
    "name",
)
_CALL = _object(
    "ToolCall",
    {
        "id": _or_null(TEXT),
        "type": _or_null({"type": "string", "enum": ["function"]}),
        "function": _FUNCTION,
        "index": _or_null({"type": "integer"}),  # of a streamed call; some clients keep it
    },
    "function",
)
_COMMON: dict[str, Any] = {
    "content": _or_null(TEXT, {"type": "array", "items": _PART}),
    "name": _or_null(TEXT),
    "tool_call_id": _or_null(TEXT),
    "tool_calls": _or_null({"type": "array", "items": _CALL}),
    **{name: _or_null(TEXT) for name in REASONING},
    # OpenAI's clients send back all fields of an answer; these are not supported unless they say nothing.
    "annotations": _or_null({"type": "array", "maxItems": 0, "items": {}}),
    "audio": NULL,
    "function_call": NULL,
    "refusal": NULL,
}
