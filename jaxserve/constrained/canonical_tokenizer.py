"""Host: `CanonicalTokenizer`: texts to the tokens that a tokenizer makes of them, in the form that llguidance calls."""

from collections.abc import Callable, Sequence

BEFORE = "\x02"  # a character that no word of a vocabulary contains, before a text that continues another one


class CanonicalTokenizer:
    """What `llguidance.LLTokenizer` asks of a tokenizer: the bytes of tokens, special ids, and a call.

    tokens: the bytes of each id, and one more id at the end, which stands for the end of a text. A call gives the ids
    of a text whose bytes are those of the text; where the tokenizer changes texts (normal forms of Unicode), the
    longest token that fits is taken each time.
    """

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, token_bytes: Sequence[bytes], vocab_size: int, tokenizer_json: str | None):
        self.tokens = [*token_bytes, *[b""] * (vocab_size - len(token_bytes)), b""]
        self.eos_token_id = vocab_size
        self.special_token_ids = [vocab_size]
        self.fallback: Callable[[str], list[int]] = _nothing
        self._backend = None
        if tokenizer_json is not None:
            from tokenizers import Tokenizer

            self._backend = Tokenizer.from_str(tokenizer_json)
            self._backend.encode_special_tokens = True  # special tokens that are spelled in a text stay text

    def __call__(self, text: str) -> list[int]:
        if self._backend is None:
            return self.fallback(text)
        data = text.encode()
        ids = self._backend.encode(text, add_special_tokens=False).ids
        if self._bytes(ids) == data:
            return ids
        # Some tokenizers put a space before a text, but not within it.
        before = self._backend.encode(BEFORE, add_special_tokens=False).ids
        ids = self._backend.encode(BEFORE + text, add_special_tokens=False).ids
        if ids[: len(before)] == before and self._bytes(ids[len(before) :]) == data:
            return ids[len(before) :]
        return self.fallback(text)

    def _bytes(self, ids: list[int]) -> bytes:
        return b"".join([self.tokens[i] for i in ids])


def _nothing(text: str) -> list[int]:
    return []
