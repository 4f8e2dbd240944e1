"""Host: `CallList`: the calls of one answer as their parser finds them, and how a text that is none becomes content."""

import secrets
from collections.abc import Callable, Collection

from jaxserve.text.parsing.answer_events import CallArguments, CallStart, Content, Steps
from jaxserve.text.parsing.text_reader import TextReader


def new_call_id() -> str:
    """As OpenAI's: "call_" and hexadecimal digits."""
    return f"call_{secrets.token_hex(12)}"


class CallList:
    """names: of the tools on offer. new_id: makes the id of a call.

    Formats with a marker allow any name, and the client answers a wrong one. In those without, an object
    is a call only if it has one of the names: else every JSON answer would be one.
    """

    def __init__(self, names: Collection[str], new_id: Callable[[], str] = new_call_id):
        self.names = frozenset(names)
        self._new_id = new_id
        self._num_calls = 0

    def start(self, name: str) -> CallStart:
        """The next call begins."""
        self._num_calls += 1
        return CallStart(self._num_calls - 1, name, self._new_id())

    def arguments(self, text: str) -> CallArguments:
        """Arguments of the call that began last."""
        return CallArguments(self._num_calls - 1, text)


def or_content(reader: TextReader, call: Steps[bool]) -> Steps[bool]:
    """What `call` yields; where it finds none (False), what the reader has held since the marker is content."""
    is_call = yield from call
    held = reader.release()
    if held and not is_call:
        yield Content(held)
    return is_call


def closing(reader: TextReader, marker: str) -> Steps[None]:
    """Read the marker that ends a call; it may be missing."""
    reader.hold()
    yield from or_content(reader, _marker(reader, marker))


def _marker(reader: TextReader, marker: str) -> Steps[bool]:
    yield from reader.spaces()
    return (yield from reader.accept(marker))


def everything(reader: TextReader) -> Steps[None]:
    """All text is content."""
    while (yield from reader.more()) or reader.num_unread:
        yield Content(reader.take(reader.num_unread))
