"""A real `jaxserve serve` in a process of its own, for proofs that talk to it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.processes.server_process import SERVE, ServerProcess

START_LIMIT_S = 600


@contextmanager
def served(model: str, *options: str, key: str = "", command: tuple[str, ...] = SERVE) -> Iterator[str]:
    """The address of a server that is ready, on a free port of this machine; it must end well when it is told to."""
    with ServerProcess(model, *options, key=key, command=command) as server:
        server.until("ready after", START_LIMIT_S)
        yield server.url
        server.send(signal.SIGTERM)
        if code := server.exit_code():
            raise RuntimeError(f"the server ended with {code}:\n{server.log}")
