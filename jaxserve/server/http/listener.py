"""Host: `Listener`: the server's socket, and uvicorn configured to serve on it."""

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from jaxserve.core.errors import ConfigError
from jaxserve.server.http.bounded_protocol import bounded
from jaxserve.server.server_config import ServerConfig

BACKLOG = 2048
GRACE_S = 2  # for open connections to close at shutdown


class Listener(uvicorn.Server):
    """A uvicorn server without its signal handlers, which would close the socket while requests are still served.

    Raises OSError for an address that cannot be bound, `ConfigError` for unusable TLS files. address: as clients write
    it.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig):
        super().__init__(
            uvicorn.Config(
                app,
                http=bounded(config),
                loop="none",
                lifespan="off",
                ws="none",
                access_log=False,
                log_config=None,
                timeout_keep_alive=config.keep_alive_timeout_s,
                timeout_graceful_shutdown=GRACE_S,
                ssl_keyfile=config.ssl_keyfile,
                ssl_certfile=config.ssl_certfile,
                server_header=False,
            )
        )
        try:
            self.config.load()  # uvicorn would load later, after the address is logged
        except (OSError, ValueError) as error:
            files = f"ssl_certfile={config.ssl_certfile}, ssl_keyfile={config.ssl_keyfile}"
            raise ConfigError(f"{files}: not usable for TLS: {error}", param="ssl_certfile") from None
        self._socket = _bind_port(config) if config.uds is None else _bind_path(config.uds)
        self._socket.listen(BACKLOG)  # from now on connections wait in the backlog instead of being refused
        self.address = _address(config, self._socket)
        self._uds = config.uds
        self._file = os.stat(config.uds or self._socket.fileno())

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def listen(self) -> None:
        """Serve until `should_exit` is set."""
        await self.serve([self._socket])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Removes the Unix socket's path before closing the socket: afterwards a new file may get the same inode."""
        if self._uds is not None:
            with suppress(OSError):
                if os.path.samestat(os.stat(self._uds), self._file):  # else another server has taken over the path
                    os.unlink(self._uds)
        await super().shutdown(sockets)


def _bind_path(uds: str) -> socket.socket:
    path = Path(uds)
    if path.exists() and not path.is_socket():
        raise OSError(f"uds={uds}: the path exists and is not a socket")
    if _is_listening(uds):
        raise OSError(f"uds={uds}: another server is listening there")
    path.unlink(missing_ok=True)  # left by a server that was killed
    bound = socket.socket(socket.AF_UNIX)
    old_umask = os.umask(0o177)  # only this user may connect
    try:
        bound.bind(uds)
    finally:
        os.umask(old_umask)
    return bound


def _is_listening(uds: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # a blocking connect would wait for a server whose backlog is full
        with suppress(BlockingIOError):
            try:
                probe.connect(uds)
            except (ConnectionRefusedError, FileNotFoundError):
                return False
    return True


def _bind_port(config: ServerConfig) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OSError(f"--host {config.host} is neither an address nor a known host name: {reason}") from None
    bound = socket.socket(family, kind, protocol)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise OSError(f"cannot listen on {config.host}:{config.port}: {error.strerror}") from None
    return bound


def _address(config: ServerConfig, bound: socket.socket) -> str:
    if config.uds is not None:
        return f"unix:{config.uds}"
    host, port = bound.getsockname()[:2]
    return f"http{'s' if config.ssl_certfile else ''}://{f'[{host}]' if ':' in host else host}:{port}"
