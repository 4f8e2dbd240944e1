"""Host: the socket that a server listens on, and uvicorn set up for it."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from jaxserve.core.errors import ConfigError
from jaxserve.server.http.bounded_protocol import bounded
from jaxserve.server.server_config import ServerConfig

BACKLOG = 2048
GRACE_S = 2  # for connections to close once the server is done


class Listener(uvicorn.Server):
    """uvicorn without its own handling of signals, which would close the socket while requests are still served.

    Raises OSError where the address cannot be had, `ConfigError` for files that TLS cannot use. address: as clients
    write it.
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
            self.config.load()  # else uvicorn does it later, when others have been told that the server is there
        except (OSError, ValueError) as error:
            files = f"ssl_certfile={config.ssl_certfile}, ssl_keyfile={config.ssl_keyfile}"
            raise ConfigError(f"{files}: TLS cannot use them: {error}", param="ssl_certfile") from None
        self._socket = _at_port(config) if config.uds is None else _at_path(config.uds)
        self._socket.listen(BACKLOG)  # from now on whoever connects is kept waiting, not refused
        self.address = _address(config, self._socket)
        self._uds = config.uds
        self._file = os.stat(config.uds or self._socket.fileno())

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def listen(self) -> None:
        """Until `should_exit` is set."""
        await self.serve([self._socket])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """The path goes first: a file made once the socket is closed may get its number."""
        if self._uds is not None:
            with suppress(OSError):
                if os.path.samestat(os.stat(self._uds), self._file):  # else another server has its own there by now
                    os.unlink(self._uds)
        await super().shutdown(sockets)


def _at_path(uds: str) -> socket.socket:
    path = Path(uds)
    if path.exists() and not path.is_socket():
        raise OSError(f"uds={uds}: something else than a socket is there")
    if _is_answered(uds):
        raise OSError(f"uds={uds}: another server listens there")
    path.unlink(missing_ok=True)  # of a server that was killed
    made = socket.socket(socket.AF_UNIX)
    old = os.umask(0o177)  # only this user may connect
    try:
        made.bind(uds)
    finally:
        os.umask(old)
    return made


def _is_answered(uds: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)  # or it would wait for a server whose queue is full
        with suppress(BlockingIOError):
            try:
                probe.connect(uds)
            except (ConnectionRefusedError, FileNotFoundError):
                return False
    return True


def _at_port(config: ServerConfig) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(address)
    except OSError as error:
        made.close()
        raise OSError(f"cannot listen on {config.host}:{config.port}: {error.strerror}") from None
    return made


def _address(config: ServerConfig, made: socket.socket) -> str:
    if config.uds is not None:
        return f"unix:{config.uds}"
    host, port = made.getsockname()[:2]
    return f"http{'s' if config.ssl_certfile else ''}://{f'[{host}]' if ':' in host else host}:{port}"
