"""Host: `GgufFields`: the `tokenizer.ggml.*` values of a GGUF file's metadata, each of the kind that it must have."""

import math
from collections.abc import Mapping
from numbers import Integral
from typing import Any, cast

from jaxserve.core.errors import ConfigError

PREFIX = "tokenizer.ggml."


class GgufFields:
    """Values by their names without the prefix. Raises `ConfigError` for one of another kind; an absent one is None."""

    def __init__(self, metadata: Mapping[str, Any]):
        self._metadata = metadata

    def text(self, name: str) -> str | None:
        value = self._metadata.get(PREFIX + name)
        return value if value is None or isinstance(value, str) else _refuse(name, "text")

    def flag(self, name: str, default: bool) -> bool:
        value = self._metadata.get(PREFIX + name, default)
        return value if isinstance(value, bool) else _refuse(name, "true or false")

    def token_id(self, name: str, vocab_size: int) -> int | None:
        """The id; None where it is absent or outside the vocabulary."""
        value = self._metadata.get(f"{PREFIX}{name}_token_id")
        if value is None:
            return None
        if not isinstance(value, Integral) or value is True or value is False:
            _refuse(f"{name}_token_id", "an integer")
        return int(value) if 0 <= int(value) < vocab_size else None

    def texts(self, name: str) -> list[str] | None:
        value = self._metadata.get(PREFIX + name)
        if value is None:
            return None
        items = cast(list[Any], value) if isinstance(value, list) else [value]
        if value is not items or not all(isinstance(item, str) for item in items):
            _refuse(name, "a list of texts")
        return items

    def integers(self, name: str) -> list[int] | None:
        return self._numbers(name, (int,), "integers")

    def floats(self, name: str) -> list[float] | None:
        return self._numbers(name, (float, int), "finite numbers")

    def _numbers(self, name: str, kinds: tuple[type, ...], noun: str) -> list[Any] | None:
        value = self._metadata.get(PREFIX + name)
        if value is None:
            return None
        items: Any = value.tolist() if hasattr(value, "tolist") else value  # of an array, as the reader makes them
        if not isinstance(items, list) or not all(
            type(item) in kinds and math.isfinite(item) for item in cast(list[Any], items)
        ):
            _refuse(name, f"a list of {noun}")
        return cast(list[Any], items)


def _refuse(name: str, kind: str) -> Any:
    raise ConfigError(f"{PREFIX}{name} in the GGUF file must be {kind}", "tokenizer")
