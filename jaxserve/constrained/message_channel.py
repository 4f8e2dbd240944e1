"""Host: `MessageChannel`: JSON messages between two processes, over a pair of sockets."""

import json
import socket
from time import monotonic
from typing import Any

HEADER_BYTES = 4
OUT_OF_MEMORY = 3  # exit code of a process that may have no memory left for a message
READ_BYTES = 1 << 16


class MessageChannel:
    """One end of a connection. A message is an object of JSON, after its length in bytes.

    Methods raise EOFError when the other end is closed or its process has ended, TimeoutError after `timeout_s`.
    """

    def __init__(self, end: socket.socket):
        self._socket = end
        self._received = bytearray()

    def send(self, message: dict[str, Any], timeout_s: float | None = None) -> None:
        """Returns when the system has the message; waits only where more is on its way than a socket's buffer holds.
        After a TimeoutError part of a message may have been sent: the connection is then of no use."""
        data = json.dumps(message, separators=(",", ":")).encode()
        self._socket.settimeout(timeout_s)
        try:
            self._socket.sendall(len(data).to_bytes(HEADER_BYTES, "little") + data)
        except (BrokenPipeError, ConnectionError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise EOFError from error

    def receive(self, timeout_s: float | None = None) -> dict[str, Any]:
        """The next message. timeout_s: 0 returns at once if there is none yet, by a TimeoutError."""
        deadline_s = None if timeout_s is None else monotonic() + timeout_s
        while (message := self._take()) is None:
            left_s = None if deadline_s is None else max(0.0, deadline_s - monotonic())
            self._socket.settimeout(left_s)
            try:
                data = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                raise TimeoutError from None
            except ConnectionError as error:
                raise EOFError from error
            if not data:
                raise EOFError
            self._received += data
        return message

    def close(self) -> None:
        self._socket.close()

    def _take(self) -> dict[str, Any] | None:
        buffer = self._received
        end = HEADER_BYTES + int.from_bytes(buffer[:HEADER_BYTES], "little")
        if len(buffer) < max(HEADER_BYTES, end):
            return None
        message = json.loads(bytes(buffer[HEADER_BYTES:end]))
        del buffer[:end]
        return message
