"""Host: a conversation on a terminal, or line by line from a pipe."""

import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from jaxserve.cli.chat_session.conversation import ContextFullError, Conversation
from jaxserve.cli.chat_session.slash_commands import ALIASES, COMMANDS, CommandResult, obey
from jaxserve.core.errors import RequestError

PROMPT, MORE = ">>> ", "... "
FENCE = '"""'
NOT_FINITE = "the model's numbers are not finite: the answer is not kept"


def talk(conversation: Conversation, read_line: Callable[[str], str] = input) -> None:
    """Until the user leaves. read_line: shows a prompt and returns a line, as `input` does."""
    was_interrupted = False
    while True:
        try:
            text = read_turn(read_line)
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            if was_interrupted:
                print()
                return
            was_interrupted = True
            print("\n(Ctrl-C again, Ctrl-D or /exit leaves)")
            continue
        was_interrupted = False
        if text.strip():
            try:
                reply = (
                    obey(conversation, text) if text.startswith("/") else CommandResult(pieces=conversation.ask(text))
                )
                if reply.text:
                    print(reply.text)
                if reply.pieces is not None:
                    _show(conversation, reply.pieces)
                if reply.is_end:
                    return
            except ContextFullError as error:
                print(f"{error}. /undo takes back the last question, /reset forgets all.")
            except (RequestError, OSError) as error:
                print(error)


def read_turn(read_line: Callable[[str], str]) -> str:
    """One message: a line, lines joined by backslashes at their ends, or all between two fences."""
    line = read_line(PROMPT)
    if line.startswith(FENCE):
        lines = [line.removeprefix(FENCE)]
        while not lines[-1].rstrip().endswith(FENCE):
            lines.append(read_line(MORE))
        return "\n".join(lines).rstrip().removesuffix(FENCE).strip("\n")
    while line.endswith("\\"):
        line = f"{line[:-1]}\n{read_line(MORE)}"
    return line


def answer_lines(conversation: Conversation, lines: Iterable[str]) -> int:
    """Each line is a question, none a command. Returns the exit code: 1 if any could not be answered."""
    status = 0
    for line in lines:
        if text := line.rstrip("\r\n"):
            try:
                _write(conversation.ask(text))
                print()
                if conversation.last is not None and conversation.last.finish_reason == "error":
                    raise RequestError(NOT_FINITE)
            except RequestError as error:
                print(f"jaxserve chat: {error}", file=sys.stderr)
                status = 1
    return status


def _show(conversation: Conversation, pieces: Iterator[str]) -> None:
    """Write an answer until it ends or the user stops it, and say why where that is not plain."""
    with suppress(KeyboardInterrupt), _interruptible(pieces) as until_stopped:
        _write(until_stopped)
    print()
    last, limit = conversation.last, conversation.params.max_tokens
    if last is None or last.finish_reason is None:
        print("(stopped)")
    elif last.finish_reason == "error":
        print(f"({NOT_FINITE})")
    elif last.finish_reason == "length" and limit is not None and last.num_tokens >= limit:
        print(f"(stopped at max_tokens {limit}: /set max_tokens none lets an answer fill the context)")
    elif last.finish_reason == "length":
        print("(the context is full: /undo takes back the last question, /reset forgets all)")


def _write(pieces: Iterable[str]) -> None:
    for piece in pieces:
        print(piece, end="", flush=True)


@contextmanager
def _interruptible(pieces: Iterator[str]) -> Iterator[Iterator[str]]:
    """The pieces, ending after the one that comes next when the user presses Ctrl-C; a second one interrupts at once.

    So the engine is left between two steps, not in one.
    """
    presses: list[int] = []

    def press(number: int, frame: FrameType | None) -> None:
        presses.append(number)
        if len(presses) > 1:
            signal.default_int_handler(number, frame)

    def until_pressed() -> Iterator[str]:
        for piece in pieces:
            yield piece
            if presses:
                return

    before = signal.signal(signal.SIGINT, press)
    try:
        yield until_pressed()
    finally:
        signal.signal(signal.SIGINT, before)
        getattr(pieces, "close", lambda: None)()


def edit_lines() -> None:
    """Let `input` edit its line, recall earlier ones and complete commands, where Python was built with readline."""
    try:
        import readline
    except ImportError:
        return
    names = sorted(f"/{name} " for name in (*COMMANDS, *ALIASES))
    readline.set_completer_delims("")
    readline.set_completer(lambda text, i: next(iter([name for name in names if name.startswith(text)][i:]), None))
    readline.parse_and_bind("tab: complete")
