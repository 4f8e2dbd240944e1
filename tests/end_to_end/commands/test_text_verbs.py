"""`jaxserve generate` and `jaxserve chat` with the demo model; `chat` on a terminal."""

import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

from tests.repository.test_host_half import loaded_after
from tests.support.processes.command_line import DEMO_SIZES, jaxserve

NAME = "smollm2-135m-instruct"
COMMAND = [sys.executable, "-m", "jaxserve.cli.main", "chat"]
SMALL = [NAME, "--temperature", "0", *DEMO_SIZES]
CTRL_C, CTRL_D = "\x03", "\x04"
# Makes standard input the controlling terminal, so that Ctrl-C arrives, then runs the command.
ON_ITS_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


@pytest.mark.thorough
def test_generate_prints_the_completion_and_times_loading_compiling_and_generating_apart(real_model):
    real_model(NAME)
    args = ["--prompt", "The capital of France is", "--temperature", "0", "--max-tokens", "4"]
    done = jaxserve("generate", NAME, *DEMO_SIZES, *args)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(" Paris.")
    figures = re.search(
        r"^model loaded in [\d.]+ s\n"
        r"2 programs compiled in [\d.]+ s \([012] of them read from the compilation cache\)\n"
        r"4 tokens generated in [\d.]+ s: [\d.]+ tokens/s, compilation not counted\n"
        r"first token [\d.]+ s after the start of the process, loading and compilation included$",
        done.stderr,
        re.MULTILINE,
    )
    assert figures, done.stderr
    assert "\r" not in done.stderr  # bars are for terminals only


class Terminal:
    """A process on its own pseudo-terminal."""

    def __init__(self, command):
        self._side, other = pty.openpty()
        command = [sys.executable, "-c", ON_ITS_TERMINAL, *command]
        self.process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, start_new_session=True)
        os.close(other)
        self.shown = ""

    def type(self, text):
        os.write(self._side, text.encode())

    def until(self, text, timeout_s=120.0):
        """The output from here to the end of `text`."""
        deadline_s = time.monotonic() + timeout_s
        while text not in self.shown:
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, f"{text!r} does not come: {self.shown!r}"
            if select.select([self._side], [], [], left_s)[0]:
                self.shown += os.read(self._side, 65536).decode(errors="replace")
        before, _, self.shown = self.shown.partition(text)
        return before + text

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._side)


@pytest.fixture
def terminal():
    opened = Terminal([*COMMAND, *SMALL, "--max-tokens", "8", "--system", "Answer in one word."])
    yield opened
    opened.close()


@pytest.mark.thorough
def test_a_conversation_on_a_terminal(real_model, terminal, tmp_path):
    real_model(NAME)
    terminal.until(">>> ")
    terminal.type("What is the capital of France?\n")
    assert "Paris" in terminal.until(">>> ")
    terminal.type("/stats\n")
    assert "tokens/s" in terminal.until(">>> ")
    terminal.type("/set max_tokens none\n")
    terminal.until(">>> ")
    terminal.type("/set ignore_eos true\n")
    terminal.until(">>> ")
    terminal.type("What is the capital of France?\n")
    terminal.until("Paris")
    terminal.type(CTRL_C)
    terminal.until("(stopped)")
    terminal.until(">>> ")
    terminal.type(f"/save {tmp_path / 'chat.json'}\n")
    assert "Saved 5 messages" in terminal.until(">>> ")
    terminal.type(CTRL_D)
    assert terminal.process.wait(60) == 0


def test_mistakes_come_without_jax():
    chat = ["chat", NAME]
    statements = (
        "from jaxserve.cli.main import main\n"
        f"assert main({[*chat, '--top-p', '7']}) == main({[*chat, '--chat-template-kwargs', '{']}) == 2"
    )
    assert "jax" not in loaded_after(statements, "jax")
