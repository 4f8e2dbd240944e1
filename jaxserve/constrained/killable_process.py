"""Host: `GrammarProcess`: a running grammar process, seen from the engine's side: messages, limits of time, its death.

A grammar may take long or much memory, in a library that cannot be interrupted, and a defect of it would end the
engine. So grammars live in processes of their own that are killed when they are late.
"""

import os
import signal
import socket
import subprocess
import sys
import weakref
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

from jaxserve.constrained.grammar_vocabulary import GrammarVocabulary
from jaxserve.constrained.mask_memory import MaskMemory
from jaxserve.constrained.message_channel import OUT_OF_MEMORY, MessageChannel

START_LIMIT_S = 60.0  # a vocabulary of 262,144 takes 3 s to read; the rest is reserve for a busy machine
PROGRAM = (
    "import sys; sys.path += sys.argv[6:]; from jaxserve.constrained.grammar_process import main; "
    "main(*map(int, sys.argv[1:6]))"
)


class LostProcess(Exception):
    """The process has ended, or was killed because it was late (`was_late`); the message continues "it …"."""

    def __init__(self, message: str, was_late: bool = False):
        super().__init__(message)
        self.was_late = was_late


class NoProcess(LostProcess):
    """The process cannot start, whatever it is asked."""


class GrammarProcess:
    """A process with the vocabulary and the mask rows. memory_limit: bytes that it may allocate beyond its start."""

    def __init__(self, vocabulary: GrammarVocabulary, masks: MaskMemory, memory_limit: int, num_threads: int):
        ours, theirs = socket.socketpair()
        self._channel = MessageChannel(ours)
        self._errors = os.memfd_create("errors")
        self._memory_limit = memory_limit
        self.ready_s: float | None = None  # when it had read the vocabulary, on the monotonic clock
        inherited = (theirs.fileno(), vocabulary.file, masks.descriptor)
        try:
            self.process = subprocess.Popen(
                command(*inherited, memory_limit, num_threads),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=inherited,
                env={"MALLOC_ARENA_MAX": "2", "TOKENIZERS_PARALLELISM": "false"},  # an arena takes 64 MiB of addresses
                cwd="/",
                start_new_session=True,  # Ctrl-C in a terminal reaches the engine only
            )
        except OSError as error:
            ours.close()
            os.close(self._errors)
            raise NoProcess(f"has no process: {error}") from None
        finally:
            theirs.close()
        weakref.finalize(self, _end, self.process, ours, self._errors)

    def send(self, message: dict[str, Any], limit_s: float) -> None:
        """Raises `LostProcess` where the process does not take it in time."""
        try:
            self._channel.send(message, limit_s)
        except (TimeoutError, EOFError) as error:
            raise self._lost(error, limit_s) from None

    def receive(self, limit_s: float) -> dict[str, Any]:
        """The next message; kills the process, and raises `LostProcess`, if there is none in time."""
        try:
            self._wait_until_ready()
            return self._channel.receive(limit_s)
        except (TimeoutError, EOFError) as error:
            raise self._lost(error, limit_s) from None

    def poll(self) -> dict[str, Any] | None:
        """A message that has arrived."""
        try:
            message = self._channel.receive(0)
            if self.ready_s is not None:
                return message
            self.ready_s = monotonic()
            return self.poll()
        except TimeoutError:
            return None
        except EOFError as error:
            raise self._lost(error, 0) from None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _wait_until_ready(self) -> None:
        if self.ready_s is None:
            self._channel.receive(START_LIMIT_S)
            self.ready_s = monotonic()

    def _lost(self, error: Exception, limit_s: float) -> LostProcess:
        if isinstance(error, TimeoutError):
            self.kill()
            return LostProcess(f"took too long: more than {limit_s:g} s", was_late=True)
        deadline_s = monotonic() + 1
        try:
            code = self.process.wait(deadline_s - monotonic())
        except subprocess.TimeoutExpired:
            self.kill()
            code = self.process.returncode
        text = os.pread(self._errors, 1 << 16, 0).decode(errors="replace")
        if code == OUT_OF_MEMORY or "memory allocation of" in text:
            return LostProcess(f"needs too much memory: more than {self._memory_limit >> 20} MiB")
        if self.ready_s is None and code > 0:
            return NoProcess(f"has no process, which ended with code {code} at its start: {text[-2000:]}")
        name = f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"
        return LostProcess(f"ended its process with {name}")


def _end(process: "subprocess.Popen[bytes]", connection: socket.socket, errors: int) -> None:
    connection.close()
    process.kill()
    process.wait()
    os.close(errors)


def command(*values: int) -> list[str]:
    """Starts `grammar_process.main` with these values; only the folders of modules that it needs are on its path."""
    specs = [find_spec(name) for name in ("llguidance", "tokenizers")]
    folders = [Path(str(spec.origin)).parents[1] for spec in specs if spec is not None]
    roots = dict.fromkeys(map(str, (Path(__file__).parents[2], *folders)))
    return [sys.executable, "-I", "-S", "-B", "-c", PROGRAM, *map(str, values), *roots]
