"""Host: `SSEDecoder`: extracts the data of server-sent events from a byte stream (HTML standard, 9.2)."""


class SSEDecoder:
    """Takes pieces of the stream, cut anywhere. Comments and fields other than data are ignored."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that this piece completes."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        found: list[bytes] = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                found.append(b"\n".join(self._data))
                self._data.clear()
        return found
