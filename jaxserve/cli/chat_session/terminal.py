"""Host: runs a conversation on a terminal, or line by line from a pipe."""

import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from jaxserve.cli.chat_session.compile_notice import compile_notice
from jaxserve.cli.chat_session.conversation import ContextFullError, Conversation
from jaxserve.cli.chat_session.slash_commands import ALIASES, COMMANDS, CommandResult, run_command
from jaxserve.core.errors import RequestError

PROMPT, MORE = ">>> ", "... "
FENCE = '"""'
NOT_FINITE = "the model's logits are not finite: the answer is discarded"


def talk(conversation: Conversation, read_line: Callable[[str], str] = input) -> None:
    """Reads and answers messages until the user exits. read_line: shows a prompt and returns a line, as `input`."""
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
            print("\n(Ctrl-C again, Ctrl-D or /exit ends the chat)")
            continue
        was_interrupted = False
        if text.strip():
            try:
                is_command = text.startswith("/")
                reply = run_command(conversation, text) if is_command else CommandResult(pieces=conversation.ask(text))
                if reply.text:
                    print(reply.text)
                if reply.pieces is not None:
                    _show(conversation, reply.pieces)
                if reply.is_end:
                    return
            except ContextFullError as error:
                print(f"{error}. /undo removes the last question, /reset removes all turns.")
            except (RequestError, OSError) as error:
                print(error)


def read_turn(read_line: Callable[[str], str]) -> str:
    """One message: a line, lines that end with a backslash and the next one, or the lines between two fences."""
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
    """Answers each line as a question, never as a command. Returns the exit code: 1 if a question has no answer."""
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
    """Prints an answer until it ends or the user stops it, and the reason where the answer is cut off."""
    with suppress(KeyboardInterrupt), _interruptible(pieces) as until_stopped:
        with compile_notice():
            first = next(until_stopped, "")
        _write((first,))
        _write(until_stopped)
    print()
    last, limit = conversation.last, conversation.params.max_tokens
    if last is None or last.finish_reason is None:
        print("(stopped)")
    elif last.finish_reason == "error":
        print(f"({NOT_FINITE})")
    elif last.finish_reason == "length" and limit is not None and last.num_tokens >= limit:
        print(f"(stopped at max_tokens {limit}: /set max_tokens none allows answers up to the context's end)")
    elif last.finish_reason == "length":
        print("(the context is full: /undo removes the last question, /reset removes all turns)")


def _write(pieces: Iterable[str]) -> None:
    for piece in pieces:
        print(piece, end="", flush=True)


@contextmanager
def _interruptible(pieces: Iterator[str]) -> Generator[Iterator[str]]:
    """The pieces up to the next one after Ctrl-C; a second Ctrl-C interrupts at once.

    So the engine stops between two steps and not inside one.
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
    """Enables line editing, history and command completion in `input`, where Python was built with readline."""
    try:
        import readline
    except ImportError:
        return
    names = sorted(f"/{name} " for name in (*COMMANDS, *ALIASES))
    readline.set_completer_delims("")
    readline.set_completer(lambda text, i: next(iter([name for name in names if name.startswith(text)][i:]), None))
    readline.parse_and_bind("tab: complete")
