"""Host: `NoTokenLeft`, a stop reason: what a request asks for bans every token that it allows."""

from collections.abc import Sequence


class NoTokenLeft(str):
    """names: the parameters that leave none together. Servers tell it from other reasons by its type."""

    __slots__ = ("param",)

    param: str

    def __new__(cls, names: Sequence[str]) -> "NoTokenLeft":
        self = super().__new__(cls, f"no token could be drawn: {' and '.join(names)} leave none")
        self.param = names[0]
        return self
