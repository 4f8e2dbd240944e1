"""Host: calls as JSON objects with a name and arguments, which most formats have in common."""

import json
from typing import Any

from jaxserve.text.parsing.answer_events import Steps
from jaxserve.text.parsing.json_scan import JsonScan
from jaxserve.text.parsing.text_reader import TextReader
from jaxserve.text.tool_calls.call_list import CallList, or_content

NAME = "name"
ARGUMENTS = ("arguments", "parameters")


def json_call(reader: TextReader, calls: CallList, *, has_marker: bool) -> Steps[bool]:
    """Reads {"name": …, "arguments": {…}}, in any order and with other fields, which say nothing.

    False: this is no call, and nothing was yielded. A call counts from the moment at which its name is known and its
    arguments begin: from then on they are passed on as they arrive, up to where they are no JSON any more. has_marker:
    the format has a marker for calls. Else the name must be one of a tool, and arguments must be there.
    """
    name: str | None = None
    arguments: str | None = None  # as text, if they came before the name or may be no object
    has_more = yield from reader.accept("{")
    while has_more:
        key = yield from _key(reader)
        if key is None:
            return False
        if key == NAME and name is None:
            name = yield from json_string(reader)
            if not name or not (has_marker or name in calls.names):
                return False
        elif key in ARGUMENTS and arguments is None:
            if name is not None and (yield from reader.peek()) == "{":
                yield from begun_call(reader, calls, name)
                reader.hold()
                yield from or_content(reader, _closing(reader))
                return True
            arguments = _as_object((yield from json_value(reader)))
            if arguments is None:
                return False
        elif (yield from json_value(reader)) is None:
            return False
        yield from reader.spaces()
        has_more = yield from reader.accept(",")
    if not (yield from reader.accept("}")) or name is None or (arguments is None and not has_marker):
        return False
    reader.release()
    yield calls.start(name)
    yield calls.arguments(arguments or "{}")
    return True


def json_calls(reader: TextReader, calls: CallList, *, has_marker: bool) -> Steps[bool]:
    """One such object, or a list of them. Of a list with a fault the calls before it count, and the rest is held."""
    if (yield from reader.accept("[")):
        return (yield from json_items(reader, calls, has_marker=has_marker))
    return (yield from json_call(reader, calls, has_marker=has_marker))


def json_items(reader: TextReader, calls: CallList, *, has_marker: bool) -> Steps[bool]:
    """The calls of a list after its bracket."""
    if not (yield from separated_calls(reader, calls, ",", has_marker=has_marker)):
        return False
    return (yield from reader.accept("]"))


def separated_calls(reader: TextReader, calls: CallList, separator: str, *, has_marker: bool) -> Steps[bool]:
    """One object or more; what follows the last one is held."""
    has_more = True
    while has_more:
        yield from reader.spaces()
        if not (yield from json_call(reader, calls, has_marker=has_marker)):
            return False
        reader.hold()
        yield from reader.spaces()
        has_more = yield from reader.accept(separator)
    return True


def begun_call(reader: TextReader, calls: CallList, name: str) -> Steps[bool]:
    """A call of a known name, whose arguments the reader stands at; returns whether they are complete."""
    reader.release()
    yield calls.start(name)
    scan = JsonScan()
    while True:
        if made := reader.run(scan.scan):
            yield calls.arguments(made)
        if scan.is_done or scan.has_failed or not (yield from reader.more()):
            return scan.is_done


def json_value(reader: TextReader) -> Steps[str | None]:
    """The text of a JSON value, or None."""
    scan, pieces = JsonScan(), list[str]()
    while True:
        pieces.append(reader.run(scan.scan))
        if scan.is_done or scan.has_failed or not (yield from reader.more()):
            scan.finish()
            return "".join(pieces) if scan.is_done else None


def json_string(reader: TextReader) -> Steps[str | None]:
    """The value of a JSON string, or None."""
    if (yield from reader.peek()) != '"':
        return None
    text = yield from json_value(reader)
    value = None if text is None else json.loads(text)
    return value if value is not None and is_unicode(value) else None


def _key(reader: TextReader) -> Steps[str | None]:
    """The key of a field, read up to its value; None where there is none."""
    yield from reader.spaces()
    key = yield from json_string(reader)
    yield from reader.spaces()
    if key is None or not (yield from reader.accept(":")):
        return None
    yield from reader.spaces()
    return key


def _closing(reader: TextReader) -> Steps[bool]:
    """Read the fields after the arguments, up to the end of the object; False where something else follows."""
    while True:
        yield from reader.spaces()
        if (yield from reader.accept("}")):
            return True
        if not (yield from reader.accept(",")):
            return False
        if (yield from _key(reader)) is None or (yield from json_value(reader)) is None:
            return False


def _as_object(text: str | None) -> str | None:
    """The text of an object, also where it stands in a string; null is an empty one. Other values are None."""
    if text in (None, "null"):
        return None if text is None else "{}"
    try:
        value: Any = json.loads(text)
        if isinstance(value, str):
            text, value = value, json.loads(value)
    except (ValueError, RecursionError):
        return None
    return text if isinstance(value, dict) and is_unicode(text) else None


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can represent it: escapes of JSON and Python can spell halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
