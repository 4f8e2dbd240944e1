"""Host: what an answer's text consists of, in the order in which it arrives: content, reasoning, calls of tools."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class Content:
    """Further text of the message."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Further text of the reasoning before the message."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call of a tool. index: of the call in the answer, from 0. call_id: by which the tool's result refers to it."""

    index: int
    name: str
    call_id: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """Further text of a call's arguments; all texts of one index together are a JSON object, or begin one."""

    index: int
    text: str


AnswerEvent = Content | Reasoning | CallStart | CallArguments
Result = TypeVar("Result")
# Parsers are generators: they yield events, and None where they wait for more text.
Steps = Generator[AnswerEvent | None, None, Result]
