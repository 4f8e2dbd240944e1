"""Host: `checked_items` and `messages_of`: the input of a response, as the messages of a chat."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from jaxserve.core.errors import RequestError
from jaxserve.server.openai.responses_api.input_item_schema import ITEMS
from jaxserve.text.chat_messages import text_of
from jaxserve.text.message_schema import MAX_MESSAGES
from jaxserve.text.schema_check import check_schema

INPUT = "input"
CALLS = "tool_calls"
PARTS = ("reasoning_content", "content", CALLS)  # of an assistant's message, in the order in which models write them
Item = Mapping[str, Any]
Message = dict[str, Any]


def checked_items(given: Any) -> list[Item]:
    """The items of a body's `input`; a text is the message of a user. Raises `RequestError` with the path of what is
    invalid, as in `input[3].content[0].text`."""
    if given == "":
        raise RequestError(f"{INPUT} is empty", INPUT)
    if isinstance(given, str):
        given = [{"type": "message", "role": "user", "content": given}]
    check_schema(given, {"type": "array", "minItems": 1, "maxItems": MAX_MESSAGES, "items": {"type": "object"}}, INPUT)
    items = cast(list[Item], given)
    return [_checked(item, f"{INPUT}[{i}]") for i, item in enumerate(items)]


def _checked(item: Item, path: str) -> Item:
    kind = item.get("type") or "message"
    check_schema(kind, {"type": "string", "enum": list(ITEMS)}, f"{path}.type")
    typed = {**item, "type": kind}
    check_schema(typed, ITEMS[kind], path)
    if kind == "message" and not text_of(item["content"]):
        raise RequestError(f"{path}.content is empty", f"{path}.content")
    if kind == "function_call":
        _check_json(item["arguments"], f"{path}.arguments")
    return typed


def _check_json(text: str, path: str) -> None:
    try:
        json.loads(text or "{}")
    except (ValueError, RecursionError):
        raise RequestError(f"{path} is not JSON", path) from None


def messages_of(instructions: str | None, items: Iterable[Item]) -> list[Message]:
    """The messages of checked items, after one of the system with the instructions.

    Reasoning, a text and function calls that follow each other in this order are one message of the assistant, as the
    model wrote them.
    """
    messages: list[Message] = [] if instructions is None else [{"role": "system", "content": instructions}]
    for item in items:
        if item["type"] == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": text_of(item["output"])})
        elif item.get("role", "assistant") != "assistant":
            messages.append({"role": item["role"], "content": text_of(item["content"])})
        elif part := _assistant_part(item):
            _add(messages, part)
    return messages


def _assistant_part(item: Item) -> Message:
    """What an item adds to a message; nothing where it has no text."""
    if item["type"] == "function_call":
        function = {"name": item["name"], "arguments": item["arguments"]}
        return {CALLS: [{"id": item["call_id"], "type": "function", "function": function}]}
    name = "content" if item["type"] == "message" else "reasoning_content"
    text = text_of(item.get("content") or item.get("summary"))
    return {name: text} if text else {}


def _add(messages: list[Message], part: Message) -> None:
    (name,) = part
    last = messages[-1] if messages and messages[-1]["role"] == "assistant" else None
    if last is not None and name == CALLS and CALLS in last:
        last[CALLS] += part[CALLS]
    elif last is not None and all(PARTS.index(name) > PARTS.index(other) for other in last if other != "role"):
        last |= part
    else:
        messages.append({"role": "assistant", **part})
