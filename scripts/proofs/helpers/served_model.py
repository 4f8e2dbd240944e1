"""Runs a real `jaxserve serve` in a separate process for the proofs that send it requests."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.processes.server_process import SERVE, ServerProcess

START_LIMIT_S = 600


@contextmanager
def served(model: str, *options: str, key: str = "", command: tuple[str, ...] = SERVE) -> Iterator[str]:
    """Yields the address of a ready server on a free local port; then stops it and checks its exit code."""
    with ServerProcess(model, *options, key=key, command=command) as server:
        server.until("ready after", START_LIMIT_S)
        yield server.url
        server.send(signal.SIGTERM)
        if code := server.exit_code():
            raise RuntimeError(f"the server exited with status {code} after SIGTERM:\n{server.log}")
