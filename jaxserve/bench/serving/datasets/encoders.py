"""Host: `Encoder`: token ids of texts, from a local tokenizer or from the measured server."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from jaxserve.core.errors import ConfigError

if TYPE_CHECKING:
    from jaxserve.text.tokenizer import Tokenizer

PostJson = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Posts a JSON body to a path of the server and returns the answer."""


class Encoder(Protocol):
    """adds_special: whether the special tokens that a server adds to a prompt, such as <bos>, are included; those of
    chat templates never are."""

    async def encode(self, texts: Sequence[str]) -> list[list[int]]: ...


class LocalEncoder:
    """Encodes with a local tokenizer."""

    def __init__(self, tokenizer: "Tokenizer", *, adds_special: bool) -> None:
        self.tokenizer, self.adds_special = tokenizer, adds_special

    async def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return self.tokenizer.encode_batch(texts, self.adds_special)


class ServerEncoder:
    """Encodes with the server's POST /tokenize, one text per request, as in vLLM and jaxserve.

    Raises `ConfigError` where the server has no such route.
    """

    def __init__(self, post: PostJson, model: str, *, adds_special: bool) -> None:
        self.post, self.model, self.adds_special = post, model, adds_special

    async def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return await asyncio.gather(*map(self._encode, texts))

    async def _encode(self, text: str) -> list[int]:
        body = {"model": self.model, "prompt": text, "add_special_tokens": self.adds_special}
        try:
            ids = (await self.post("/tokenize", body))["tokens"]
            if not all(type(i) is int for i in ids):
                raise TypeError
        except (TypeError, LookupError, ConfigError) as error:
            reason = error if isinstance(error, ConfigError) else "the server's /tokenize answers without tokens"
            raise ConfigError(f"{reason}; add --tokenizer to count tokens locally", param="tokenizer") from None
        return ids
