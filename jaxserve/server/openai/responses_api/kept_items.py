"""Host: `kept_items`: the items of an input in the form in which they are stored and sent to clients."""

from collections.abc import Iterable
from typing import Any

from jaxserve.server.openai.responses_api.input_items import Item
from jaxserve.text.chat_messages import text_of

PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


def kept_items(items: Iterable[Item], suffix: str) -> list[Item]:
    """Checked items, each with an id: its own, or a new one that ends with the suffix and its index."""
    return [_kept(item, f"{PREFIXES[item['type']]}_{suffix}_in_{i}") for i, item in enumerate(items)]


def _kept(item: Item, new_id: str) -> Item:
    kept: dict[str, Any] = {
        "id": item.get("id") or new_id,
        "type": item["type"],
        "status": item.get("status") or "completed",
    }
    match item["type"]:
        case "message":
            return kept | {"role": item["role"], "content": [_part(item["role"], text_of(item["content"]))]}
        case "function_call":
            return kept | {name: item[name] for name in ("call_id", "name", "arguments")}
        case "function_call_output":
            return kept | {"call_id": item["call_id"], "output": text_of(item["output"])}
        case _:
            return kept | {"summary": item.get("summary") or [], "content": item.get("content") or []}


def _part(role: str, text: str) -> dict[str, Any]:
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "input_text", "text": text}
