"""Host: the chats on which chat templates are compared with transformers, each with its rendering options.

A chat with `plainly` has messages in a form that clients send but few templates support (null content, text parts,
arguments as JSON text). jaxserve renders them like the plain form, so transformers renders the plain form. Templates
named in `read_by` support the original messages and receive them unchanged.
"""

from typing import Any

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city <now> & later",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "e.g. Köln"},
                "unit": {"type": "string", "enum": ["c", "f"]},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}}}}
TOOLS = [WEATHER, CLOCK]


def _say(*turns: str) -> list[dict[str, Any]]:
    """Messages of user and assistant, alternating."""
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(turns)]


def _system(text: Any) -> dict[str, Any]:
    return {"role": "system", "content": text}


def _call(arguments: Any, content: Any = "", name: str = "get_weather") -> dict[str, Any]:
    calls = [{"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def _parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


QUESTION = {"role": "user", "content": "Weather in Köln?"}
RESULT = {"role": "tool", "tool_call_id": "call_1", "name": "get_weather", "content": '{"degrees": 21}'}
ARGUMENTS = {"city": "Köln", "unit": "c"}
CONTINUED = {"add_generation_prompt": False, "continue_final_message": True}

CHATS: list[dict[str, Any]] = [
    {"name": "plain", "messages": _say("What is 2+2?")},
    {"name": "without a generation prompt", "messages": _say("Hi"), "add_generation_prompt": False},
    {
        "name": "system and turns",
        "messages": [_system("Be brief.\nBe kind."), *_say("Héllo <|im_end|> 😀", " Hi! ", "")],
    },
    {"name": "many turns", "messages": _say("a", "b", " c ", "\nd\n", "e", "f", "g")},
    {"name": "ends with the assistant", "messages": _say("a", "b")},
    {"name": "ends with the assistant, closed", "messages": _say("a", "b"), "add_generation_prompt": False},
    {"name": "only a system message", "messages": [_system("Be brief.")]},
    {"name": "system in the middle", "messages": [*_say("a", "b"), _system("s"), *_say("c")]},
    {"name": "continue", "messages": _say("Count", "One, two,"), **CONTINUED},
    {"name": "continue after a space", "messages": _say("Count", "One, two, "), **CONTINUED},
    {"name": "continue many turns", "messages": [_system("s"), *_say("a", "b", "c", " d\n")], **CONTINUED},
    {"name": "continue nothing", "messages": _say("Count", ""), **CONTINUED},
    {"name": "continue null", "messages": [*_say("a"), {"role": "assistant", "content": None}], **CONTINUED},
    {"name": "continue after a thought", "messages": _say("a", "<think>\nhm\n</think>\n\nb"), **CONTINUED},
    {"name": "continue after a thought in one line", "messages": _say("a", "<think>hm</think>b"), **CONTINUED},
    {"name": "tools", "messages": _say("Weather?"), "tools": TOOLS},
    {"name": "tools and system", "messages": [_system("Be brief."), *_say("Weather?")], "tools": TOOLS},
    {"name": "a tool call", "messages": [QUESTION, _call(ARGUMENTS)], "tools": TOOLS, "add_generation_prompt": False},
    {"name": "a tool call with words", "messages": [QUESTION, _call(ARGUMENTS, "I look."), RESULT], "tools": TOOLS},
    {
        "name": "tool calls, results and an answer",
        "messages": [
            QUESTION,
            {"role": "assistant", "content": "", "tool_calls": 2 * _call(ARGUMENTS)["tool_calls"]},
            RESULT,
            RESULT,
            {"role": "assistant", "content": "21 °C."},
            *_say("And now?"),
        ],
        "tools": TOOLS,
    },
    {
        "name": "arguments as JSON text",
        "messages": [QUESTION, _call('{"city": "Köln", "unit":"c"}'), RESULT],
        "plainly": [QUESTION, _call(ARGUMENTS), RESULT],
        "tools": TOOLS,
    },
    {
        "name": "null content beside a tool call",
        "messages": [QUESTION, _call(ARGUMENTS, None), RESULT],
        "plainly": [QUESTION, _call(ARGUMENTS, ""), RESULT],
        "tools": TOOLS,
    },
    {
        "name": "null content",
        "messages": [*_say("a"), {"role": "assistant", "content": None}, *_say("c")],
        "plainly": _say("a", "", "c"),
    },
    {
        "name": "thinking of old and new",
        "messages": _say("a", "<think>\nhm\n</think>\n\nb", "c", "<think>\nso\n</think>\n\nd"),
        "add_generation_prompt": False,
    },
    {
        "name": "reasoning in a field of its own",
        "messages": [*_say("a"), {"role": "assistant", "content": "b", "reasoning_content": "hm"}],
        "add_generation_prompt": False,
    },
    {
        "name": "reasoning under an older name",
        "messages": [*_say("a"), {"role": "assistant", "content": "b", "reasoning": "hm"}],
        "add_generation_prompt": False,
    },
    {
        "name": "reasoning beside a tool call",
        "messages": [QUESTION, _call(ARGUMENTS) | {"reasoning_content": "look\n"}, RESULT],
        "tools": TOOLS,
    },
    {"name": "enable_thinking on", "messages": _say("a"), "enable_thinking": True},
    {"name": "enable_thinking off", "messages": _say("a"), "enable_thinking": False},
    {"name": "a date", "messages": [_system("s"), *_say("a")], "date_string": "26 Jul 2024"},
    {
        "name": "parts of text",
        "messages": [{"role": "user", "content": _parts(" a ", "b")}],
        "plainly": _say(" a \nb"),
        "read_by": ["gemma3"],
    },
    {
        "name": "a system message in parts",
        "messages": [_system(_parts("s")), *_say("a")],
        "plainly": [_system("s"), *_say("a")],
        "read_by": ["gemma3"],
    },
    {
        "name": "continue a part of text",
        "messages": [*_say("a"), {"role": "assistant", "content": _parts("b", "c ")}],
        "plainly": _say("a", "b\nc "),
        "read_by": ["gemma3"],
        **CONTINUED,
    },
    {"name": "two users in a row", "messages": [*_say("a"), *_say("b")]},
    {"name": "the assistant begins", "messages": _say("a", "b")[1:]},
    {"name": "a result without a call", "messages": [*_say("a"), RESULT]},
]
OPTIONS = ("add_generation_prompt", "continue_final_message", "tools", "enable_thinking", "date_string")


def options_of(chat: dict[str, Any]) -> dict[str, Any]:
    """The rendering options of a chat."""
    return {"add_generation_prompt": True} | {name: chat[name] for name in OPTIONS if name in chat}


def seen_by(model: str, chat: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages that transformers renders with the template of this model."""
    return chat["messages"] if model in chat.get("read_by", ()) else chat.get("plainly", chat["messages"])
