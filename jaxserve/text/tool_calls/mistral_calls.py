"""Host: calls as Mistral's models write them: [TOOL_CALLS] and a list of objects, or [TOOL_CALLS]name[ARGS]{…}."""

import re
import secrets
import string

from jaxserve.text.parsing.answer_events import Steps
from jaxserve.text.parsing.text_reader import TextReader
from jaxserve.text.tool_calls.call_list import CallList, or_content
from jaxserve.text.tool_calls.json_call import begun_call, json_items

START, CALL_ID, ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
NAME, ID = re.compile(r"[\w.-]*"), re.compile(r"\w*")
ID_CHARS = string.ascii_letters + string.digits


def mistral_call_id() -> str:
    """Nine letters and digits: Mistral's templates refuse other ids."""
    return "".join(secrets.choice(ID_CHARS) for _ in range(9))


def mistral(reader: TextReader, calls: CallList) -> Steps[None]:
    """A list after the marker (tokenizers up to v7), or one call after each marker."""
    while (yield from reader.until((START,))) is not None:
        yield from reader.spaces()
        yield from or_content(reader, _calls(reader, calls))


def _calls(reader: TextReader, calls: CallList) -> Steps[bool]:
    if (yield from reader.accept("[")):
        return (yield from json_items(reader, calls, has_marker=True))
    name = yield from reader.run_of(NAME)
    if (yield from reader.accept(CALL_ID)):
        yield from reader.run_of(ID)
    yield from reader.accept(ARGUMENTS)
    yield from reader.spaces()
    if not name or (yield from reader.peek()) != "{":
        return False
    yield from begun_call(reader, calls, name)
    return True
