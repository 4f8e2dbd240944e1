"""Host: `check_tools`, `chat_tools` and `chat_choice`: the tools of a response's body in the form of chats.

OpenAI's responses have flat tools, {"type": "function", "name", …}, where chats have an object in the object.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from jaxserve.core.errors import RequestError
from jaxserve.text.schema_check import check_schema
from jaxserve.text.tool_calls.tool_schema import CHOICE_SCHEMA, MAX_TOOLS, TOOLS_SCHEMA

NULL = {"type": "null"}
_FUNCTION: Mapping[str, Any] = TOOLS_SCHEMA["items"]["properties"]["function"]["properties"]
_SHARED = ("name", "description", "parameters", "strict")  # with the functions of chats
# Of functions that run apart from the conversation, which is not built; clients send null.
_NOT_BUILT = ("async", "defer_loading", "allowed_callers", "output_schema")
FUNCTION = "function"
RESPONSE_TOOLS: dict[str, Any] = {
    "type": "array",
    "maxItems": MAX_TOOLS,
    "items": {
        "type": "object",
        "title": "FunctionTool",
        "properties": {
            "type": {"type": "string", "enum": [FUNCTION]},
            **{name: _FUNCTION[name] for name in _SHARED},
            **dict.fromkeys(_NOT_BUILT, NULL),
        },
        "required": ["type", "name"],
        "additionalProperties": False,
    },
}
RESPONSE_CHOICE: dict[str, Any] = {
    "anyOf": [
        CHOICE_SCHEMA["anyOf"][0],
        {
            "type": "object",
            "title": "FunctionToolChoice",
            "properties": {"type": {"type": "string", "enum": [FUNCTION]}, "name": {"type": "string"}},
            "required": ["type", "name"],
            "additionalProperties": False,
        },
    ]
}


def check_tools(tools: Any, choice: Any) -> None:
    """Raises `RequestError` with the path of what has not the form of these schemas."""
    if tools is not None:
        check_schema(tools, RESPONSE_TOOLS, "tools")
    if choice is not None:
        check_schema(choice, RESPONSE_CHOICE, "tool_choice")


def chat_tools(tools: Any) -> list[dict[str, Any]]:
    """Of checked tools."""
    found = cast(Sequence[Mapping[str, Any]], tools or ())
    return [{"type": FUNCTION, FUNCTION: {name: tool[name] for name in _SHARED if name in tool}} for tool in found]


def chat_choice(choice: Any) -> Any:
    """Of a checked choice."""
    if not isinstance(choice, Mapping):
        return choice
    return {"type": FUNCTION, FUNCTION: {"name": cast(Mapping[str, Any], choice)["name"]}}


def shown_tools(tools: Any) -> list[dict[str, Any]]:
    """Checked tools as they stand in a response."""
    found = cast(Sequence[Mapping[str, Any]], tools or ())
    return [{"type": FUNCTION, **{name: tool.get(name) for name in _SHARED}} for tool in found]


@contextmanager
def errors_name_flat_tools() -> Generator[None]:
    """Errors about the tools of chats name the fields of flat ones."""
    try:
        yield
    except RequestError as error:
        if error.param is None or not error.param.startswith("tools["):
            raise
        flat = error.param.replace(f".{FUNCTION}.", ".", 1)
        raise RequestError(str(error).replace(error.param, flat, 1), flat) from None
