"""Host: answers that a grammar holds to calls, for the tool choices "required" and one function."""

from collections.abc import Callable

from jaxserve.text.parsing.answer_events import Steps
from jaxserve.text.parsing.text_reader import TextReader
from jaxserve.text.tool_calls.call_list import CallList, everything, or_content
from jaxserve.text.tool_calls.json_call import begun_call


def arguments_of(name: str) -> Callable[[TextReader, CallList], Steps[None]]:
    """The format of an answer that is the arguments of one function and nothing else."""

    def parse(reader: TextReader, calls: CallList) -> Steps[None]:
        reader.hold()
        yield from or_content(reader, _call(reader, calls))
        yield from everything(reader)

    def _call(reader: TextReader, calls: CallList) -> Steps[bool]:
        yield from reader.spaces()
        if (yield from reader.peek()) != "{":
            return False
        yield from begun_call(reader, calls, name)
        return True

    return parse
