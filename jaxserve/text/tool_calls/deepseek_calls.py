"""Host: calls as DeepSeek V3, R1 and V3.1 write them, between special tokens.

V3 and R1: <｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME and the arguments in a block "```json". V3.1: NAME stands
before <｜tool▁sep｜>, the arguments after it.
"""

import re

from jaxserve.text.parsing.answer_events import Steps
from jaxserve.text.parsing.text_reader import TextReader
from jaxserve.text.tool_calls.call_list import CallList, closing, or_content
from jaxserve.text.tool_calls.json_call import begun_call

CALLS_START, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL_START, SEPARATOR, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
MARKERS = (CALLS_START, CALLS_END, CALL_START, SEPARATOR, CALL_END)
NAME = re.compile(r"[\w.-]*")
FENCE, LANGUAGE = "```", "json"


def deepseek(reader: TextReader, calls: CallList) -> Steps[None]:
    """The markers around all calls say nothing that those of each call do not: they are left out."""
    while (marker := (yield from reader.until((CALLS_START, CALLS_END, CALL_START)))) is not None:
        if marker == CALL_START:
            yield from or_content(reader, _call(reader, calls))


def _call(reader: TextReader, calls: CallList) -> Steps[bool]:
    yield from reader.spaces()
    name = yield from reader.run_of(NAME)
    if not (yield from reader.accept(SEPARATOR)):
        return False
    if (yield from reader.peek()) != "{":  # the text before the separator was the kind of tool
        name = yield from reader.run_of(NAME)
        yield from reader.spaces()
    has_block = yield from reader.accept(FENCE)
    if has_block:
        yield from reader.accept(LANGUAGE)
    yield from reader.spaces()
    if not name or (yield from reader.peek()) != "{":
        return False
    yield from begun_call(reader, calls, name)
    if has_block:
        yield from closing(reader, FENCE)
    yield from closing(reader, CALL_END)
    return True
