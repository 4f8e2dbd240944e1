"""Host: `NoUpgradeParser`, which reads a request that asks for another protocol as one that does not."""

from collections.abc import Callable
from typing import Any

from httptools import HttpParserUpgrade, HttpRequestParser


class NoUpgradeParser(HttpRequestParser):
    """The parser would skip such a request's body, and end the message. Here its head is read again without the wish.

    again: the head that is to be read instead; None where nothing can be (CONNECT).
    """

    def __init__(self, protocol: Any, again: Callable[[], bytes | None]):
        super().__init__(protocol)
        self._again = again

    def feed_data(self, data: bytes) -> None:
        rest = memoryview(data)
        while True:
            try:
                super().feed_data(rest)
                return
            except HttpParserUpgrade as upgrade:
                head = self._again()
                if head is None:
                    raise
                rest = rest[upgrade.args[0] :]
            super().feed_data(head)
