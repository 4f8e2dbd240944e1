"""Host: `Encoder`, which tells the tokens of texts: a tokenizer here, or the server that is measured."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from jaxserve.core.errors import ConfigError

if TYPE_CHECKING:
    from jaxserve.text.tokenizer import Tokenizer

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Posts a JSON body to a path of the server and returns what it answers."""


class Encoder(Protocol):
    """adds_special: whether what a server puts around a prompt, as <bos>, is counted; chat templates are not."""

    async def encode(self, texts: Sequence[str]) -> list[list[int]]: ...


class LocalEncoder:
    def __init__(self, tokenizer: "Tokenizer", *, adds_special: bool) -> None:
        self.tokenizer, self.adds_special = tokenizer, adds_special

    async def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return self.tokenizer.encode_batch(texts, self.adds_special)


class ServerEncoder:
    """POST /tokenize, a text a request, as vLLM and jaxserve have it. Raises `ConfigError` where there is none."""

    def __init__(self, ask: Ask, model: str, *, adds_special: bool) -> None:
        self.ask, self.model, self.adds_special = ask, model, adds_special

    async def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return await asyncio.gather(*map(self._encode, texts))

    async def _encode(self, text: str) -> list[int]:
        body = {"model": self.model, "prompt": text, "add_special_tokens": self.adds_special}
        try:
            ids = (await self.ask("/tokenize", body))["tokens"]
            if not all(type(i) is int for i in ids):
                raise TypeError
        except (TypeError, LookupError, ConfigError) as error:
            reason = error if isinstance(error, ConfigError) else "/tokenize of the server answers without tokens"
            raise ConfigError(f"{reason}; to count tokens here, give --tokenizer", param="tokenizer") from None
        return ids
