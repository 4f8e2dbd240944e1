"""Host: `ClientTemplate`, a chat template of somebody who is not trusted, rendered in a process that may be killed.

The sandbox keeps a template away from Python, but a few characters of one can still ask for hours of work or for all
memory, in steps that no count sees: to square a long integer even holds the interpreter. So each is compiled and
rendered in a process of its own, with limits that the system keeps: nobody else waits, and nothing is left of it.
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
from jaxserve.text.client_template_process import OUT_OF_MEMORY

MAX_CHARS = 64 << 10  # several times the longest that models come with; to compile as much takes a second
TIME_LIMIT_S = 5.0  # a process starts in 0.1 s, and renders a long chat in as much; the rest is for a busy machine
MEMORY_LIMIT = 512 << 20  # bytes: 30 MiB for the interpreter, the rest for the longest messages and output
PROGRAM = (
    "import sys; sys.path += sys.argv[3:]; from jaxserve.text.client_template_process import main; "
    "main(int(sys.argv[1]), int(sys.argv[2]))"
)


@dataclass(frozen=True, slots=True)
class ClientTemplate:
    """source: jinja2. special_tokens: bos_token and so on. time_limit_s: of one rendering, in seconds of wall time.

    memory_limit: of the process that renders, in bytes of address space.
    """

    source: str
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    time_limit_s: float = TIME_LIMIT_S
    memory_limit: int = MEMORY_LIMIT

    def with_special_tokens(self, special_tokens: Mapping[str, str]) -> "ClientTemplate":
        """The same template, which writes these."""
        return replace(self, special_tokens=dict(special_tokens))

    def render(self, messages: Sequence[Mapping[str, Any]], /, **options: Any) -> str:
        """As `ChatTemplate.render`, of which the options are, and with its errors; all must be JSON.

        However it ends, its process has ended. Raises `RequestError` also for what is too long, takes too long or needs
        too much memory.
        """
        if len(self.source) > MAX_CHARS:
            message = f"chat_template is too long: {len(self.source)} characters; at most {MAX_CHARS} are allowed"
            raise RequestError(message, "chat_template")
        asked = {"source": self.source, "special_tokens": self.special_tokens, "messages": messages, "options": options}
        try:
            line = json.dumps(asked).encode()
        except (TypeError, ValueError, RecursionError) as error:
            message = f"for a client's chat template messages and variables must be JSON: {error}"[:500]
            raise RequestError(message, "messages") from None
        answer = json.loads(self._answer(line))
        if "text" not in answer:
            raise RequestError(answer["error"], answer["param"])
        return answer["text"]

    def _answer(self, asked: bytes) -> bytes:
        cpu_s = math.ceil(self.time_limit_s) + 1  # should nobody be left to kill it
        try:
            child = subprocess.run(
                command(self.memory_limit, cpu_s),
                input=asked,
                capture_output=True,
                timeout=self.time_limit_s,  # after which it is killed and waited for
                env={"TZ": os.environ["TZ"]} if "TZ" in os.environ else {},  # templates may write today's date
                cwd="/",
                start_new_session=True,  # Ctrl-C in a terminal is for the server alone
            )
        except subprocess.TimeoutExpired:
            message = f"the chat template took too long: more than {self.time_limit_s:g} s"
            raise RequestError(message, "chat_template") from None
        code = child.returncode
        if code == OUT_OF_MEMORY:
            message = f"the chat template needs too much memory: more than {self.memory_limit >> 20} MiB"
            raise RequestError(message, "chat_template")
        if code < 0:
            raise RequestError(f"the chat template broke its process, which got signal {-code}", "chat_template")
        if code > 0:  # it could not even start, for which no template is to blame
            raise RuntimeError(f"the process of a chat template ended with {code}: {child.stderr.decode()[-2000:]}")
        return child.stdout


def command(memory_limit: int, cpu_s: int) -> list[str]:
    """What starts `client_template_child.main`; of modules it is told where to find those that it needs."""
    import jinja2
    import markupsafe

    roots = [Path(__file__).parents[2], *(Path(str(module.__file__)).parents[1] for module in (jinja2, markupsafe))]
    return [sys.executable, "-I", "-S", "-B", "-c", PROGRAM, str(memory_limit), str(cpu_s), *map(str, roots)]
