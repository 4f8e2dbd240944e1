"""Host: `ClientTemplate`: renders an untrusted chat template in a child process with time and memory limits.

The sandbox keeps a template away from Python, but a few characters can still cause hours of work or fill all memory, in
operations that the step count does not see: squaring a long integer even holds the interpreter's lock. So each client's
template is compiled and rendered in a process of its own, under limits of the operating system; other requests do not
wait for it.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jaxserve.core.errors import RequestError
from jaxserve.text.client_template_process import CLIENTS, OUT_OF_MEMORY

MAX_CHARS = 64 << 10  # several times the longest published template; compiling as much takes a second
TIME_LIMIT_S = 5.0  # a process starts in 0.1 s and renders a long chat in 0.1 s; the rest is reserve for a busy machine
MEMORY_LIMIT = 512 << 20  # bytes: 30 MiB for the interpreter, the rest for the longest messages and output
PROGRAM = (
    "import sys; sys.path += sys.argv[3:]; from jaxserve.text.client_template_process import main; "
    "main(int(sys.argv[1]), int(sys.argv[2]))"
)


@dataclass(frozen=True, slots=True)
class ClientTemplate:
    """A client's template.

    source: jinja2 text. special_tokens: bos_token and so on. time_limit_s: wall time of one rendering. memory_limit:
    address space of the child process, in bytes.
    """

    source: str
    special_tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    time_limit_s: float = TIME_LIMIT_S
    memory_limit: int = MEMORY_LIMIT

    def with_special_tokens(self, special_tokens: Mapping[str, str]) -> "ClientTemplate":
        """The same template with these special tokens."""
        return replace(self, special_tokens=dict(special_tokens))

    def render(self, messages: Sequence[Mapping[str, Any]], /, **options: Any) -> str:
        """As `ChatTemplate.render`, with its options and errors; messages and options must be JSON values.

        The child process has ended when this returns or raises. Raises `RequestError` also for a template that is too
        long, takes too long or needs too much memory.
        """
        if len(self.source) > MAX_CHARS:
            message = f"chat_template is too long: {len(self.source)} characters; at most {MAX_CHARS} are allowed"
            raise RequestError(message, "chat_template")
        values = {"source": self.source, "special_tokens": self.special_tokens}
        try:
            job = json.dumps({**values, "messages": messages, "options": options}).encode()
        except (TypeError, ValueError, RecursionError) as error:
            message = f"for a client's chat template messages and variables must be JSON: {error}"[:500]
            raise RequestError(message, "messages") from None
        answer = json.loads(self._run(job))
        if "text" not in answer:
            raise RequestError(answer["error"], answer["param"])
        return answer["text"]

    def _run(self, job: bytes) -> bytes:
        cpu_s = math.ceil(self.time_limit_s) + 1  # ends the child even if this process is killed meanwhile
        try:
            child = subprocess.run(
                command(self.memory_limit, cpu_s),
                input=job,
                capture_output=True,
                timeout=self.time_limit_s,  # `run` then kills the child and waits for it
                env={"TZ": os.environ["TZ"]} if "TZ" in os.environ else {},  # templates may write today's date
                cwd="/",
                start_new_session=True,  # Ctrl-C in a terminal reaches the server only
            )
        except subprocess.TimeoutExpired:
            message = f"{CLIENTS} took too long: more than {self.time_limit_s:g} s"
            raise RequestError(message, "chat_template") from None
        code = child.returncode
        if code == OUT_OF_MEMORY:
            message = f"{CLIENTS} needs too much memory: more than {self.memory_limit >> 20} MiB"
            raise RequestError(message, "chat_template")
        if code < 0:
            raise RequestError(f"{CLIENTS} crashed its process with signal {-code}", "chat_template")
        if code > 0:  # the process failed to start, which is not the template's fault
            raise RuntimeError(f"the chat template process ended with code {code}: {child.stderr.decode()[-2000:]}")
        return child.stdout


def command(memory_limit: int, cpu_s: int) -> list[str]:
    """The command that starts `client_template_process.main`, with the folders of the modules that it needs."""
    import jinja2
    import markupsafe

    roots = [Path(__file__).parents[2], *(Path(str(module.__file__)).parents[1] for module in (jinja2, markupsafe))]
    return [sys.executable, "-I", "-S", "-B", "-c", PROGRAM, str(memory_limit), str(cpu_s), *map(str, roots)]
