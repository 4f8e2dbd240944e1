"""An answer's events put together again, as a client does it."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from jaxserve.text.parsing.answer_events import AnswerEvent, CallArguments, CallStart, Content, Reasoning
from jaxserve.text.parsing.answer_format import AnswerFormat
from jaxserve.text.tool_calls.tool_call_formats import TOOL_CALL_FORMATS

NAMES = ("get_weather", "add", "get-time")


@dataclass
class Parsed:
    """calls: name and text of the arguments of each."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    def take(self, events: Iterable[AnswerEvent]) -> None:
        """Raises AssertionError where a call's arguments come before its name, or calls are mixed."""
        for event in events:
            match event:
                case Content(text):
                    self.content += text
                case Reasoning(text):
                    self.reasoning += text
                case CallStart(index, name, call_id):
                    assert index == len(self.calls)
                    self.calls.append((name, ""))
                    self.ids.append(call_id)
                case CallArguments(index, text):
                    assert index == len(self.calls) - 1
                    name, before = self.calls[index]
                    self.calls[index] = name, before + text

    @property
    def said(self) -> tuple[str, str, list[tuple[str, str]]]:
        return self.content, self.reasoning, self.calls


def parsed(answers: AnswerFormat, pieces: Iterable[str]) -> Parsed:
    found, parser = Parsed(), answers.parser()
    for piece in pieces:
        found.take(parser.push(piece))
    found.take(parser.finish())
    return found


def called(name: str, text: str, **options) -> tuple[str, list[tuple[str, str]]]:
    """Content and calls of an answer in a format."""
    found = parsed(AnswerFormat(TOOL_CALL_FORMATS[name], NAMES, **options), [text])
    return found.content, found.calls


def divisions(text: str, num: int, seed: int = 0) -> Iterator[list[str]]:
    """The text character by character, then in random pieces, some of them empty."""
    yield list(text)
    draw = random.Random(seed)
    for _ in range(num):
        cuts = sorted(draw.choices(range(len(text) + 1), k=draw.randint(0, max(1, len(text) // 2))))
        yield [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
