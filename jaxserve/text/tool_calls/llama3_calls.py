"""Host: calls as Llama 3.1 to 3.3 write them: {"name": …, "parameters": {…}}, often after <|python_tag|>."""

from jaxserve.text.parsing.answer_events import Steps
from jaxserve.text.parsing.text_reader import TextReader
from jaxserve.text.tool_calls.call_list import CallList, or_content
from jaxserve.text.tool_calls.json_call import separated_calls

TAG, SEPARATOR = "<|python_tag|>", ";"


def llama3_json(reader: TextReader, calls: CallList) -> Steps[None]:
    """Calls at the beginning of the answer or after the tag, several with semicolons between them. Only after the tag a
    name may be any."""
    reader.hold()
    yield from or_content(reader, _objects(reader, calls, has_marker=False))
    while (yield from reader.until((TAG,))) is not None:
        yield from or_content(reader, _objects(reader, calls, has_marker=True))


def _objects(reader: TextReader, calls: CallList, *, has_marker: bool) -> Steps[bool]:
    if not (yield from separated_calls(reader, calls, SEPARATOR, has_marker=has_marker)):
        return False
    reader.release()
    return True
