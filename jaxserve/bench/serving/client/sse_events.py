"""Host: `SSEDecoder`, the data of server-sent events out of the bytes of a stream (HTML standard, 9.2)."""


class SSEDecoder:
    """Takes bytes as they come, cut anywhere. Comments and fields other than data are passed over."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that are complete with this piece."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        found = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                found.append(b"\n".join(self._data))
                self._data.clear()
        return found
