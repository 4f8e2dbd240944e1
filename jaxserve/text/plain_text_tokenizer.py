"""Host: `PlainTextTokenizer`: encodes users' text as plain text; special tokens come from templates only."""

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxserve.core.errors import ConfigError, RequestError
from jaxserve.text.tokenizer import Tokenizer, check_unicode
from jaxserve.text.user_text import MARK, unmarked

if TYPE_CHECKING:
    import tokenizers


class PlainTextTokenizer(Tokenizer):
    """`encode` and `encode_batch` take users' texts, and `encode_rendered` takes texts that `UserText` has marked.

    A copy of the backend recognizes no special tokens, but another spelling of each, which users cannot write: rendered
    texts are encoded in one piece, with the special tokens of the template in that spelling. Added tokens that are not
    special, such as runs of spaces, are encoded as ever.
    """

    def __init__(self, tokenizer: Tokenizer):
        super().__init__(
            tokenizer.backend,
            eos_ids=tokenizer.eos_ids,
            bos_id=tokenizer.bos_id,
            special_ids=tokenizer.special_ids,
        )
        added = self.backend.get_added_tokens_decoder()
        ids = {token.content: i for i, token in added.items() if i in self.special_ids}
        self.plain_tokens = tuple(sorted(ids, key=len, reverse=True))  # the longest first, as the backend matches them
        any_token = "|".join(map(re.escape, self.plain_tokens)) or "(?!)"
        # Gemma has 6,249 special tokens: without looking for a mark first, each "<" of users' text takes 46 µs.
        self._any_special = re.compile(f"(?!.{MARK})(?:{any_token})", re.DOTALL)
        self._respelled = {content: f"{MARK}{i}{MARK}" for content, i in ids.items()}
        self._plain = _without_special_tokens(self.backend, self.special_ids)
        for content, i in ids.items():
            if i in self._plain.encode(content, add_special_tokens=False).ids:
                message = f"escape_special_tokens: this tokenizer makes the special token {content!r} of plain text"
                raise ConfigError(message, "escape_special_tokens")
        self._plain.add_tokens([_like(added[i], self._respelled[content]) for content, i in ids.items()])
        self._id_of = {self._plain.token_to_id(self._respelled[content]): i for content, i in ids.items()}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return self.encode_batch([text], add_special_tokens)[0]

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        if any(MARK in text for text in texts):
            raise RequestError("the prompt holds U+10FFFF, which is not a character", "prompt")
        return self._encode(texts, add_special_tokens)

    def encode_rendered(self, texts: Sequence[str], add_special_tokens: bool = False) -> list[list[int]]:
        return self._encode([self._respell(text) for text in texts], add_special_tokens)

    def _respell(self, text: str) -> str:
        """The text without marks, with the template's special tokens in the other spelling."""
        pieces: list[str] = []
        end = 0
        for found in self._any_special.finditer(text):
            pieces += [unmarked(text[end : found.start()]), self._respelled[found.group()]]
            end = found.end()
        return "".join([*pieces, unmarked(text[end:])])

    def _encode(self, texts: Sequence[str], add_special_tokens: bool) -> list[list[int]]:
        for text in texts:
            check_unicode(text)
        encoded = self._plain.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        return [[self._id_of.get(i, i) for i in each.ids] for each in encoded]


def _without_special_tokens(backend: "tokenizers.Tokenizer", special_ids: frozenset[int]) -> "tokenizers.Tokenizer":
    """A copy that neither recognizes special tokens in texts nor makes them by merges."""
    from tokenizers import Tokenizer as Backend

    spec: dict[str, Any] = json.loads(backend.to_str())
    special = {token["content"] for token in spec["added_tokens"] if token["id"] in special_ids}
    for token in spec["added_tokens"]:
        token["special"] = token["content"] in special
    if merges := spec["model"].get("merges"):
        spec["model"]["merges"] = [merge for merge in merges if _merged(merge) not in special]
    copy = Backend.from_str(json.dumps(spec))
    copy.encode_special_tokens = True
    return copy


def _merged(merge: Any) -> str:
    return merge.replace(" ", "") if isinstance(merge, str) else "".join(merge)


def _like(token: "tokenizers.AddedToken", content: str) -> "tokenizers.AddedToken":
    """A token of another spelling that takes the same spaces around it."""
    from tokenizers import AddedToken

    flags = {name: getattr(token, name) for name in ("single_word", "lstrip", "rstrip", "normalized")}
    return AddedToken(content, special=False, **flags)
