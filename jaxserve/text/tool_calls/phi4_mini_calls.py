"""Host: calls as Phi-4-mini writes them: functools[{"name": …, "arguments": {…}}], or the list after <|tool_call|>."""

from jaxserve.text.parsing.answer_events import Steps
from jaxserve.text.parsing.text_reader import TextReader
from jaxserve.text.tool_calls.call_list import CallList, closing, or_content
from jaxserve.text.tool_calls.json_call import json_calls, json_items

WORD, START, END = "functools[", "<|tool_call|>", "<|/tool_call|>"


def phi4_mini(reader: TextReader, calls: CallList) -> Steps[None]:
    """A list after either marker."""
    while (marker := (yield from reader.until((WORD, START)))) is not None:
        yield from reader.spaces()
        read = json_items if marker == WORD else json_calls
        if (yield from or_content(reader, read(reader, calls, has_marker=True))) and marker == START:
            yield from closing(reader, END)
