"""Host: `input_schema`: the JSON schemas of a response's input: what is checked, and described to clients."""

from collections.abc import Mapping
from typing import Any

from jaxserve.text.message_schema import MAX_MESSAGES

Schema = Mapping[str, Any]
INPUT_ROLES = ("user", "assistant", "system", "developer")


def _object(title: str, required: tuple[str, ...], properties: Mapping[str, Schema]) -> Schema:
    closed = {"required": list(required), "additionalProperties": False}
    return {"type": "object", "title": title, "properties": properties, **closed}


def _item(title: str, kind: str, required: tuple[str, ...], properties: Mapping[str, Schema]) -> Schema:
    """An item of one type, with the fields that items of all types have."""
    return _object(title, required, {"type": _one_of(kind), "id": _or_null(_TEXT), "status": _STATUS, **properties})


def _one_of(*texts: str) -> Schema:
    return {"type": "string", "enum": list(texts)}


def _or_null(*kinds: Schema) -> Schema:
    return {"anyOf": [*kinds, _NULL]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_NULL: Schema = {"type": "null"}
_TEXT: Schema = {"type": "string"}
_STATUS = _or_null(_one_of("in_progress", "completed", "incomplete"))
# Clients send back all fields of an output. Log-probabilities are not read; annotations are only there if empty.
_PART = _object(
    "InputPart",
    ("type", "text"),
    {
        "type": _one_of("input_text", "output_text", "text"),
        "text": _TEXT,
        "annotations": _or_null({"type": "array", "maxItems": 0, "items": {}}),
        "logprobs": {},
        "prompt_cache_breakpoint": _NULL,
    },
)
_TEXT_OR_PARTS: Schema = {"anyOf": [_TEXT, _list(_PART)]}
_SUMMARY = _object("SummaryPart", ("type", "text"), {"type": _one_of("summary_text"), "text": _TEXT})
_REASONING = _object("ReasoningPart", ("type", "text"), {"type": _one_of("reasoning_text"), "text": _TEXT})
_NOT_BUILT = {"namespace": _NULL, "caller": _NULL, "created_by": _NULL}  # of functions that programs or agents call

# By type; a message's type may be left out.
ITEMS: Mapping[str, Schema] = {
    "message": _item(
        "InputMessage",
        "message",
        ("role", "content"),
        {"role": _one_of(*INPUT_ROLES), "content": _TEXT_OR_PARTS, "phase": _NULL},
    ),
    "function_call": _item(
        "InputFunctionCall",
        "function_call",
        ("type", "call_id", "name", "arguments"),
        {"call_id": _TEXT, "name": _TEXT, "arguments": _TEXT, "async": _NULL, **_NOT_BUILT},
    ),
    "function_call_output": _item(
        "InputFunctionCallOutput",
        "function_call_output",
        ("type", "call_id", "output"),
        {"call_id": _TEXT, "name": _or_null(_TEXT), "output": _TEXT_OR_PARTS, **_NOT_BUILT},
    ),
    "reasoning": _item(
        "InputReasoning",
        "reasoning",
        ("type",),
        {"summary": _list(_SUMMARY), "content": _or_null(_list(_REASONING)), "encrypted_content": _NULL},
    ),
}


def input_schema() -> dict[str, Any]:
    """A text, or a list of items."""
    items = {"type": "array", "minItems": 1, "maxItems": MAX_MESSAGES, "items": {"anyOf": list(ITEMS.values())}}
    return {"anyOf": [{**_TEXT, "minLength": 1}, items]}
