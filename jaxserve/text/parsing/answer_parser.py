"""Host: `AnswerParser`: divides the text of one answer into content, reasoning and calls of tools, as it arrives."""

from collections.abc import Iterable, Iterator

from jaxserve.text.parsing.answer_events import AnswerEvent, CallArguments, CallStart, Content, Reasoning, Steps
from jaxserve.text.parsing.text_reader import TextReader


class AnswerParser:
    """For one sample. The events of all calls together do not depend on how the text was divided among them, once
    neighbors of one kind are joined.

    steps: reads `reader` and yields events. max_calls: calls after these are left out; None: all are kept.
    """

    def __init__(self, reader: TextReader, steps: Steps[None], max_calls: int | None = None):
        self._reader, self._steps, self._max_calls = reader, steps, max_calls
        self._trim = SpaceTrim()
        self.num_calls = 0

    def push(self, text: str) -> list[AnswerEvent]:
        """The events that this further text completes."""
        self._reader.feed(text)
        return self._events()

    def finish(self) -> list[AnswerEvent]:
        """The rest, when the answer has ended."""
        self._reader.end()
        return [*self._events(), *self._trim.finish()]

    def _events(self) -> list[AnswerEvent]:
        found: list[AnswerEvent] = []
        for event in self._trim.trimmed(self._until_waiting()):
            if isinstance(event, CallStart | CallArguments) and self._is_left_out(event.index):
                continue
            if isinstance(event, CallStart):
                self.num_calls += 1
            last = found[-1] if found else None
            match last, event:  # texts of one kind become one event
                case (Content(before), Content(text)):
                    found[-1] = Content(before + text)
                case (Reasoning(before), Reasoning(text)):
                    found[-1] = Reasoning(before + text)
                case (CallArguments(index, before), CallArguments(same, text)) if index == same:
                    found[-1] = CallArguments(index, before + text)
                case _:
                    found.append(event)
        return found

    def _is_left_out(self, index: int) -> bool:
        return self._max_calls is not None and index >= self._max_calls

    def _until_waiting(self) -> Iterator[AnswerEvent]:
        for event in self._steps:
            if event is None:
                return
            yield event


class SpaceTrim:
    """Leaves out the white space around reasoning and calls, which models write to separate them.

    The white space of an answer that is content alone stays as it is.
    """

    def __init__(self) -> None:
        self._held: list[str] = []  # white space after the last text, whose kind decides whether it is shown
        self._kind: type[Content] | type[Reasoning] = Content
        self._has_content = self._has_reasoning = self._has_calls = False

    def trimmed(self, events: Iterable[AnswerEvent]) -> Iterator[AnswerEvent]:
        for event in events:
            if isinstance(event, Content | Reasoning):
                yield from self._text(event)
            else:
                self._has_calls = True
                self._held.clear()
                yield event

    def finish(self) -> list[AnswerEvent]:
        """The white space at the end of content that no call follows or precedes."""
        is_shown = self._held and self._kind is Content and not self._has_calls
        shown = is_shown and (self._has_content or not self._has_reasoning)
        return [Content("".join(self._held))] if shown else []

    def _text(self, event: Content | Reasoning) -> Iterator[AnswerEvent]:
        if type(event) is not self._kind:
            self._kind = type(event)
            self._held.clear()
        body = event.text.rstrip()
        if not body:
            self._held.append(event.text)
            return
        before = "".join(self._held)
        self._held = [event.text[len(body) :]]
        yield self._kind((before + body).lstrip() if self._is_first() else before + body)
        if self._kind is Content:
            self._has_content = True
        else:
            self._has_reasoning = True

    def _is_first(self) -> bool:
        """Whether the white space before the text only separates it."""
        if self._kind is Reasoning:
            return not self._has_reasoning
        return not self._has_content and (self._has_reasoning or self._has_calls)
