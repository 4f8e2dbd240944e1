"""Host: `checked_messages`: validates the chat messages of clients and converts them to the form of chat templates."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from jaxserve.core.errors import RequestError

MAX_MESSAGES = 4096
REASONING = ("reasoning_content", "thinking", "reasoning")  # names used by servers; templates read the first two


def checked_messages(
    messages: Any, *, keeps_null: bool = False, keeps_parts: bool = False, keeps_developer: bool = False
) -> list[dict[str, Any]]:
    """New messages with a role and text. Raises `RequestError` that names the invalid message.

    A list of text parts is joined by newlines, unless keeps_parts: the template iterates over them. The arguments of a
    tool call, sent as JSON text, become the object that templates expect. Null content becomes "", unless keeps_null:
    few templates test it for null (DeepSeek's to recognize tool calls), while most concatenate it or search in it.
    Other null fields and an empty list of tool calls are dropped, since templates test whether a field is present.
    Reasoning is stored under both names that templates read. The role "developer" becomes "system", unless
    keeps_developer: the template handles it.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise RequestError("messages must be a list of at least one message", "messages")
    given = cast(Sequence[Any], messages)
    if len(given) > MAX_MESSAGES:
        raise RequestError(f"messages holds {len(given)} messages; at most {MAX_MESSAGES} are allowed", "messages")
    return [
        _checked(message, f"messages[{i}]", keeps_null, keeps_parts, keeps_developer) for i, message in enumerate(given)
    ]


def _object(value: Any) -> Mapping[str, Any] | None:
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else None


def _checked(given: Any, where: str, keeps_null: bool, keeps_parts: bool, keeps_developer: bool) -> dict[str, Any]:
    if (message := _object(given)) is None:
        raise RequestError(f"{where} must be an object with role and content", where)
    if not isinstance(message.get("role"), str) or not message["role"]:
        raise RequestError(f"{where}.role must be a string such as 'user'", f"{where}.role")
    checked: dict[str, Any] = {name: value for name, value in message.items() if value is not None}
    if message["role"] == "developer" and not keeps_developer:
        checked["role"] = "system"
    if calls := _tool_calls(checked.pop("tool_calls", []), f"{where}.tool_calls"):
        checked["tool_calls"] = calls
    if (reasoning := next((found for name in REASONING if (found := message.get(name)) is not None), None)) is not None:
        checked = {"thinking": reasoning, **checked, "reasoning_content": reasoning}
    content: Any = message.get("content")
    if isinstance(content, list):
        texts = _texts(cast(list[Any], content), f"{where}.content")
        content = [{"type": "text", "text": text} for text in texts] if keeps_parts and texts else "\n".join(texts)
    elif content is None:
        content = None if keeps_null else ""
    elif not isinstance(content, str):
        raise RequestError(f"{where}.content must be a string, a list of text parts, or null", f"{where}.content")
    return checked | {"content": content}


def _texts(content: list[Any], where: str) -> list[str]:
    texts: list[str] = []
    for i, item in enumerate(content):
        part = _object(item) or {}
        part_type = part.get("type")
        if part_type not in ("text", "input_text", "output_text") or not isinstance(part.get("text"), str):
            message = f"{where}[{i}]: only parts of type 'text' are supported, got {part_type!r}"
            raise RequestError(message, f"{where}[{i}]")
        texts.append(part["text"])
    return texts


def _tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise RequestError(f"{where} must be a list", where)
    return [_tool_call(call, f"{where}[{i}]") for i, call in enumerate(cast(list[Any], calls))]


def _tool_call(given: Any, where: str) -> dict[str, Any]:
    call = _object(given) or {}
    function = _object(call.get("function"))
    if function is None or not isinstance(function.get("name"), str):
        raise RequestError(f"{where}.function must be an object with a name", f"{where}.function")
    arguments: Any = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            message = f"{where}.function.arguments is not JSON"
            raise RequestError(message, f"{where}.function.arguments") from None
    return {**call, "function": {**function, "arguments": arguments}}
