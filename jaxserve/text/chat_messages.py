"""Host: chat messages as clients send them, checked and brought to the form that chat templates read."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jaxserve.core.errors import RequestError

MAX_MESSAGES = 4096
REASONING = ("reasoning_content", "thinking", "reasoning")  # what servers call it; templates read the first two


def checked_messages(
    messages: Any, *, keeps_null: bool = False, keeps_parts: bool = False, keeps_developer: bool = False
) -> list[dict[str, Any]]:
    """New messages with a role and text. Raise `RequestError` that names the message at fault.

    Content that is a list of text parts is joined by newlines, unless keeps_parts: the template goes through them
    itself. A tool call's arguments, sent as JSON text, become the object that templates expect. Null content becomes
    "", unless keeps_null: few templates test it for null (DeepSeek's tells tool calls by it), while most join it to
    text or search in it. Other fields that are null, and an empty list of tool calls, are left out, for templates ask
    whether a field is there. Reasoning is put under the names that templates read. The role "developer" becomes
    "system", unless keeps_developer: the template names it.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise RequestError("messages must be a list of at least one message", "messages")
    if len(messages) > MAX_MESSAGES:
        raise RequestError(f"messages holds {len(messages)} messages; at most {MAX_MESSAGES} are allowed", "messages")
    return [
        _checked(message, f"messages[{i}]", keeps_null, keeps_parts, keeps_developer)
        for i, message in enumerate(messages)
    ]


def _checked(message: Any, where: str, keeps_null: bool, keeps_parts: bool, keeps_developer: bool) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError(f"{where} must be an object with role and content", where)
    if not isinstance(message.get("role"), str) or not message["role"]:
        raise RequestError(f"{where}.role must be a string such as 'user'", f"{where}.role")
    checked = {name: value for name, value in message.items() if value is not None}
    if message["role"] == "developer" and not keeps_developer:
        checked["role"] = "system"
    if calls := _tool_calls(checked.pop("tool_calls", []), f"{where}.tool_calls"):
        checked["tool_calls"] = calls
    if (reasoning := next((found for name in REASONING if (found := message.get(name)) is not None), None)) is not None:
        checked = {"thinking": reasoning, **checked, "reasoning_content": reasoning}
    content = message.get("content")
    if isinstance(content, list):
        texts = _texts(content, f"{where}.content")
        content = [{"type": "text", "text": text} for text in texts] if keeps_parts and texts else "\n".join(texts)
    elif content is None:
        content = None if keeps_null else ""
    elif not isinstance(content, str):
        raise RequestError(f"{where}.content must be a string, a list of text parts, or null", f"{where}.content")
    return checked | {"content": content}


def _texts(content: list[Any], where: str) -> list[str]:
    texts = []
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in ("text", "input_text", "output_text") or not isinstance(part.get("text"), str):
            raise RequestError(f"{where}[{i}]: only parts of type 'text' are supported, got {kind!r}", f"{where}[{i}]")
        texts.append(part["text"])
    return texts


def _tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise RequestError(f"{where} must be a list", where)
    return [_tool_call(call, f"{where}[{i}]") for i, call in enumerate(calls)]


def _tool_call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise RequestError(f"{where}.function must be an object with a name", f"{where}.function")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            message = f"{where}.function.arguments is not JSON"
            raise RequestError(message, f"{where}.function.arguments") from None
    return {**call, "function": {**function, "arguments": arguments}}
