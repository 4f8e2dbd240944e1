"""Host: formats whose calls have no marker: an answer is calls if it begins with one, of a tool on offer.

Models often put them in a code block of Markdown, as in "```json".
"""

import re
from collections.abc import Callable

from jaxserve.text.parsing.answer_events import Steps
from jaxserve.text.parsing.text_reader import TextReader
from jaxserve.text.tool_calls.call_list import CallList, closing, everything, or_content
from jaxserve.text.tool_calls.json_call import json_calls, json_items
from jaxserve.text.tool_calls.python_call import python_calls, python_items

FENCE = "```"
LANGUAGE = re.compile(r"[a-z_]*")
TOOL_CODE = "```tool_code"
PYTHON_START, PYTHON_END = "<|python_start|>", "<|python_end|>"

Calls = Callable[[TextReader, CallList], Steps[bool]]


def json_answer(reader: TextReader, calls: CallList) -> Steps[None]:
    """{"name": …, "arguments": {…}}, or a list of these."""
    yield from or_content(reader, first_calls(reader, calls, _json))
    yield from everything(reader)


def pythonic(reader: TextReader, calls: CallList) -> Steps[None]:
    """[name(key=value, …), …], between <|python_start|> and <|python_end|> or alone."""
    yield from or_content(reader, first_calls(reader, calls, _python))
    while (yield from reader.until((PYTHON_START,))) is not None:
        yield from reader.spaces()
        if (yield from or_content(reader, python_calls(reader, calls))):
            yield from closing(reader, PYTHON_END)


def gemma(reader: TextReader, calls: CallList) -> Steps[None]:
    """Python or JSON, as the prompt asked for: alone at the beginning, or anywhere in a block "```tool_code"."""
    yield from or_content(reader, first_calls(reader, calls, _json_or_python))
    while (yield from reader.until((TOOL_CODE,))) is not None:
        yield from reader.spaces()
        if (yield from or_content(reader, _json_or_python(reader, calls))):
            yield from closing(reader, FENCE)


def first_calls(reader: TextReader, calls: CallList, read: Calls) -> Steps[bool]:
    """Calls at the beginning of the text, in a block or not."""
    reader.hold()
    yield from reader.spaces()
    has_block = yield from reader.accept(FENCE)
    if has_block:
        yield from reader.run_of(LANGUAGE)
        yield from reader.spaces()
    if not (yield from read(reader, calls)):
        return False
    if has_block:
        yield from closing(reader, FENCE)
    return True


def _json(reader: TextReader, calls: CallList) -> Steps[bool]:
    return (yield from json_calls(reader, calls, has_marker=False))


def _python(reader: TextReader, calls: CallList) -> Steps[bool]:
    return (yield from python_calls(reader, calls))


def _json_or_python(reader: TextReader, calls: CallList) -> Steps[bool]:
    """A list of objects begins with "[{", a list of calls with "[" and a name."""
    if (yield from reader.peek()) == "{":
        return (yield from _json(reader, calls))
    if not (yield from reader.accept("[")):
        return (yield from python_calls(reader, calls))
    yield from reader.spaces()
    is_json = (yield from reader.peek()) == "{"
    return (yield from (json_items(reader, calls, has_marker=False) if is_json else python_items(reader, calls)))
