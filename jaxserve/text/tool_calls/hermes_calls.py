"""Host: calls as Hermes and Qwen 2.5 and 3 write them: <tool_call>{"name": …, "arguments": {…}}</tool_call>."""

from jaxserve.text.parsing.answer_events import Steps
from jaxserve.text.parsing.text_reader import TextReader
from jaxserve.text.tool_calls.call_list import CallList, closing, or_content
from jaxserve.text.tool_calls.json_call import json_calls

START, END = "<tool_call>", "</tool_call>"


def hermes(reader: TextReader, calls: CallList) -> Steps[None]:
    """One call between each pair of markers."""
    while (yield from reader.until((START,))) is not None:
        yield from reader.spaces()
        if (yield from or_content(reader, json_calls(reader, calls, has_marker=True))):
            yield from closing(reader, END)
