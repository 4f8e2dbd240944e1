"""Host: `AnswerFormat`: how the answers to one request are divided into content, reasoning and calls."""

from collections.abc import Collection
from dataclasses import dataclass

from jaxserve.text.parsing.answer_events import Steps
from jaxserve.text.parsing.answer_parser import AnswerParser
from jaxserve.text.parsing.text_reader import TextReader
from jaxserve.text.reasoning.reasoning_tags import ReasoningTags
from jaxserve.text.tool_calls.call_list import CallList, everything
from jaxserve.text.tool_calls.tool_call_formats import ToolCallFormat


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """calls: None where no tools are called. names: of the tools. max_calls: how many calls an answer keeps; None: all.
    tags: None where reasoning stays content. begins_inside: answers begin within reasoning.

    The default divides nothing.
    """

    calls: ToolCallFormat | None = None
    names: Collection[str] = ()
    max_calls: int | None = None
    tags: ReasoningTags | None = None
    begins_inside: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether an answer is content alone."""
        return self.calls is None and self.tags is None

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that the answers' text must show, though some models have special tokens for them."""
        tags = () if self.tags is None else (self.tags.start, self.tags.end)
        return (*tags, *(() if self.calls is None else self.calls.markers))

    def parser(self) -> AnswerParser:
        """Of one sample."""
        reader = TextReader()
        return AnswerParser(reader, self._steps(reader), self.max_calls)

    def _steps(self, reader: TextReader) -> Steps[None]:
        if self.tags is not None:
            yield from self.tags.parse(reader, is_inside=self.begins_inside)
        if self.calls is None:
            yield from everything(reader)
        else:
            yield from self.calls.parse(reader, CallList(self.names, self.calls.new_id))
