"""`jaxserve serve` as a process: its log and its exit code."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from types import TracebackType

import httpx2

SERVE = (sys.executable, "-m", "jaxserve.cli.main", "serve")
FAKE = (sys.executable, "-m", "tests.support.processes.fake_serve")  # with a fake model and a fault


class ServerProcess:
    """Listens on a free port unless the options name a socket. log: its output so far. key: its API key."""

    def __init__(self, *args: str, command: tuple[str, ...] = SERVE, key: str = ""):
        where = () if "--uds" in args else ("--port", "0")
        env = os.environ | {"JAXSERVE_API_KEY": key}
        self.process = subprocess.Popen([*command, *args, *where], stderr=subprocess.PIPE, text=True, env=env)
        self.log = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def until(self, pattern: str, timeout_s: float = 120.0) -> str:
        """Wait until the log matches `pattern`; returns the match, or its first group."""
        deadline_s = time.monotonic() + timeout_s
        while (found := re.search(pattern, self.log)) is None:
            has_ended = not self._reader.is_alive()  # then the log is complete
            if time.monotonic() > deadline_s or (has_ended and not re.search(pattern, self.log)):
                raise AssertionError(f"{pattern!r} does not appear: {self.log[-3000:]}")
            time.sleep(0.01)
        return found[found.lastindex or 0]

    @property
    def url(self) -> str:
        """Available once the server listens."""
        return self.until(r"listening on (http://\S+);")

    def client(self, uds: str | None = None) -> httpx2.Client:
        """A client that opens a new connection for each request."""
        transport = httpx2.HTTPTransport(uds=uds)
        url = "http://server" if uds is not None else self.url
        return httpx2.Client(base_url=url, timeout=60, transport=transport, headers={"Connection": "close"})

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def exit_code(self, timeout_s: float = 60.0) -> int:
        """Wait for the process to end."""
        code = self.process.wait(timeout_s)
        self._reader.join()
        return code

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.log += line
