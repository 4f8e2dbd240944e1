"""Host: `checked_messages`: validates the chat messages of clients and converts them to the form of chat templates."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from jaxserve.core.errors import RequestError
from jaxserve.text.message_schema import REASONING, conversation_schema
from jaxserve.text.schema_check import check_schema

SCHEMA = conversation_schema()


def checked_messages(
    messages: Any,
    schema: Mapping[str, Any] = SCHEMA,
    *,
    keeps_null: bool = False,
    keeps_parts: bool = False,
    keeps_developer: bool = False,
    keeps_arguments: bool = False,
) -> list[dict[str, Any]]:
    """New messages with a role and text. Raises `RequestError` with the path of what is invalid.

    A list of text parts is joined by newlines, unless keeps_parts: the template iterates over them. The arguments of a
    tool call become the object that templates expect, or, with keeps_arguments, JSON as text. Content that is null or
    left out becomes "", unless keeps_null: few templates test it for null (DeepSeek's to recognize tool calls), most
    concatenate it or search in it. Other null fields and empty lists are dropped, since templates test whether a field
    is present. Reasoning is stored under both names that templates read. The role "developer" becomes "system", unless
    keeps_developer: the template handles it.
    """
    check_schema(messages, schema, "messages")
    return [
        _converted(message, f"messages[{i}]", keeps_null, keeps_parts, keeps_developer, keeps_arguments)
        for i, message in enumerate(cast(Sequence[Mapping[str, Any]], messages))
    ]


def text_of(content: Any) -> str:
    """The text of checked content: its parts joined by newlines."""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content or ())


def _converted(
    message: Mapping[str, Any],
    where: str,
    keeps_null: bool,
    keeps_parts: bool,
    keeps_developer: bool,
    keeps_arguments: bool,
) -> dict[str, Any]:
    _check_content(message, where)
    unsaid = {"annotations", *(() if message.get("tool_calls") else ("tool_calls",))}  # empty, as the schema requires
    converted = {name: value for name, value in message.items() if value is not None and name not in unsaid}
    if message["role"] == "developer" and not keeps_developer:
        converted["role"] = "system"
    if calls := converted.get("tool_calls"):
        places = [f"{where}.tool_calls[{i}].function.arguments" for i in range(len(calls))]
        converted["tool_calls"] = list(map(_tool_call, calls, places, [keeps_arguments] * len(calls)))
    reasoning = next((found for name in REASONING if (found := message.get(name)) is not None), None)
    if reasoning is not None:
        converted = {"thinking": reasoning, **converted, "reasoning_content": reasoning}
    content = converted.get("content")
    if content is None:
        content = None if keeps_null else ""
    elif not isinstance(content, str):
        texts = [part["text"] for part in content]
        content = [{"type": "text", "text": text} for text in texts] if keeps_parts else "\n".join(texts)
    return {**converted, "content": content}


def _check_content(message: Mapping[str, Any], where: str) -> None:
    """Content may be empty only in a tool's result, or in an assistant's message with tool calls or reasoning."""
    role, content = message["role"], message.get("content")
    has_more = role == "assistant" and (message.get("tool_calls") or any(message.get(name) for name in REASONING))
    if text_of(content) or has_more or (role == "tool" and content == ""):
        return
    state = "is missing" if "content" not in message else "is null" if content is None else "is empty"
    raise RequestError(
        f"{where}.content {state}: it may be left out only in an assistant's message with tool calls",
        f"{where}.content",
    )


def _tool_call(call: Mapping[str, Any], where: str, keeps_text: bool) -> dict[str, Any]:
    """where: the path of its arguments."""
    arguments: Any = call["function"].get("arguments")
    try:
        if isinstance(arguments, str):
            arguments = json.loads(arguments) if arguments.strip() else {}
        if keeps_text:
            arguments = json.dumps(arguments or {}, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        raise RequestError(f"{where} is not JSON", where) from None
    return {**call, "function": {**call["function"], "arguments": arguments}}
