"""Host: `NoUpgradeParser`: ignores `Upgrade` headers, for which httptools would drop the request's body."""

from collections.abc import Buffer, Callable
from typing import Any

from httptools import HttpParserUpgrade, HttpRequestParser


class NoUpgradeParser(HttpRequestParser):
    """httptools ends a message at a request to upgrade and skips its body; this parser reads the head again without it.

    head_without_upgrade: returns the head to parse instead, or None where an upgrade is genuine (CONNECT).
    """

    def __init__(self, protocol: Any, head_without_upgrade: Callable[[], bytes | None]):
        super().__init__(protocol)
        self._head_without_upgrade = head_without_upgrade

    def feed_data(self, data: Buffer) -> None:
        rest = memoryview(data)
        while True:
            try:
                super().feed_data(rest)
                return
            except HttpParserUpgrade as upgrade:
                head = self._head_without_upgrade()
                if head is None:
                    raise
                rest = rest[upgrade.args[0] :]
            super().feed_data(head)
