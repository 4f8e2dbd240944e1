"""Host: calls as Python expressions, `name(key=value, …)`, which Llama 3.2 and 4 and Gemma 3 write in a list."""

import ast
import json
import re
from typing import Any

from jaxserve.text.parsing.answer_events import Steps
from jaxserve.text.parsing.text_reader import TextReader
from jaxserve.text.tool_calls.call_list import CallList
from jaxserve.text.tool_calls.json_call import is_unicode

NAME = re.compile(r"[\w.-]*")
PLAIN = {"": re.compile(r"[^()\[\]{}\"']*"), '"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}  # by open quote
CLOSING = {"(": ")", "[": "]", "{": "}"}
WORDS = {"true": True, "false": False, "null": None}  # of JSON


def python_calls(reader: TextReader, calls: CallList) -> Steps[bool]:
    """Calls in a list, or one alone. A call is passed on when it is complete. Of a list with a fault the calls before
    it count, and the rest is held."""
    if (yield from reader.accept("[")):
        return (yield from python_items(reader, calls))
    return (yield from python_call(reader, calls))


def python_items(reader: TextReader, calls: CallList) -> Steps[bool]:
    """The calls of a list after its bracket."""
    has_more = True
    while has_more:
        yield from reader.spaces()
        if not (yield from python_call(reader, calls)):
            return False
        reader.hold()
        yield from reader.spaces()
        has_more = yield from reader.accept(",")
    return (yield from reader.accept("]"))


def python_call(reader: TextReader, calls: CallList) -> Steps[bool]:
    """One call of a tool, with keyword arguments that are literals. False: this is none, and nothing was yielded."""
    name = yield from reader.run_of(NAME)
    scan, pieces = _BracketScan(), list[str]()
    if name not in calls.names or (yield from reader.peek()) != "(":
        return False
    while not scan.is_done:
        pieces.append(reader.run(scan.scan))
        if scan.has_failed or not (scan.is_done or (yield from reader.more())):
            return False
    arguments = _as_json("".join(pieces))
    if arguments is None:
        return False
    reader.release()
    yield calls.start(name)
    yield calls.arguments(arguments)
    return True


class _BracketScan:
    """Follows text from a bracket to the one that closes it; brackets in strings do not count."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._quote = ""  # of the string that is open
        self._is_escaped = False
        self.is_done = self.has_failed = False

    def scan(self, text: str, at: int) -> tuple[int, str]:
        start = at
        while at < len(text) and not (self.is_done or self.has_failed):
            if self._is_escaped:
                self._is_escaped, at = False, at + 1
                continue
            found = PLAIN[self._quote].match(text, at)
            assert found is not None
            at = found.end()
            if at < len(text):
                self._note(text[at])
                at += 1
        return at, text[start:at]

    def _note(self, char: str) -> None:
        if self._quote:
            self._is_escaped, self._quote = char == "\\", self._quote if char == "\\" else ""
        elif char in "\"'":
            self._quote = char
        elif char in CLOSING:
            self._open.append(CLOSING[char])
        elif self._open.pop() != char:
            self.has_failed = True
        self.is_done = not self._open


def _as_json(arguments: str) -> str | None:
    """The JSON object of arguments as they stand in a call, brackets included; None if they are no literals."""
    try:
        call = ast.parse("f" + arguments, mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            return None
        values = {keyword.arg: _value(keyword.value) for keyword in call.keywords}
        text = json.dumps(values, ensure_ascii=False, allow_nan=False)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return text if None not in values and is_unicode(text) else None


def _value(node: ast.expr) -> Any:
    """The value of a literal as JSON has it. Raises ValueError for any other expression."""
    match node:
        case ast.Constant(value=str() | int() | float() | None):
            return node.value
        case ast.Name(id=word) if word in WORDS:
            return WORDS[word]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _value(value) for key, value in zip(keys, values, strict=True)}
        case _:
            raise ValueError("not a literal")


def _key(node: ast.expr | None) -> str:
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        raise ValueError("not a key of JSON")
    return node.value
