"""Host: token ids to text as they come, in whole characters.

Costs 0.4 us a token: a list look-up, a join, one call of the UTF-8 decoder; the tokenizer's own `decode_batch` costs 9
to 20 times as much. (Its `DecodeStream` raises on some ids of byte-fallback vocabularies, and repeats the whole prompt
when that ends inside a character.)
"""

import codecs
from collections.abc import Sequence

from jaxserve.text.tokenizer import Tokenizer

MAX_UTF8_BYTES = 4
CONTINUATION_BYTES = bytes(range(0x80, 0xC0))


class Detokenizer:
    """The tables that all streams of one model share. vocab_size: the model's, where padded beyond the tokenizer's."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int = 0):
        decoding = tokenizer.decoding
        padding = [b""] * max(0, vocab_size - len(decoding.raw))
        self._all = decoding.raw + padding
        self._visible = list(self._all)
        for special_id in tokenizer.special_ids:
            self._visible[special_id] = b""
        self._errors = decoding.errors
        self._strips_space = decoding.strips_space

    def stream(self, prompt_ids: Sequence[int] = (), skip_special_tokens: bool = True) -> "TextStream":
        """The text that follows a prompt.

        Together they read as the tokenizer would decode prompt and output in one: " Paris." follows "is", though
        decoded alone a SentencePiece tokenizer would drop its space. A character that the prompt leaves unfinished
        belongs to the output, whole.
        """
        table = self._visible if skip_special_tokens else self._all
        tail = b""
        for token_id in reversed(prompt_ids):
            tail = table[token_id] + tail
            if len(tail) >= MAX_UTF8_BYTES:
                break
        is_first = not tail
        tail = tail.lstrip(CONTINUATION_BYTES)
        unfinished = tail[codecs.utf_8_decode(tail, self._errors, False)[1] :]
        return TextStream(table, self._errors, unfinished, strips_space=self._strips_space and is_first)

    def token_text(self, token_id: int) -> str:
        """One token alone, special or not, with U+FFFD for the bytes of characters that it holds only in part."""
        return self._all[token_id].decode("utf-8", self._errors)


class TextStream:
    """The text of one sequence. After `finish` all of it has been returned."""

    __slots__ = ("_errors", "_strips_space", "_table", "_unfinished")

    def __init__(self, table: list[bytes], errors: str, unfinished: bytes, strips_space: bool):
        self._table = table
        self._errors = errors
        self._unfinished = unfinished
        self._strips_space = strips_space

    def push(self, token_ids: Sequence[int]) -> str:
        """The characters that these tokens complete."""
        table = self._table
        data = self._unfinished + b"".join([table[token_id] for token_id in token_ids])
        if self._strips_space and data:
            data = data.removeprefix(b" ")
            self._strips_space = False
        text, used = codecs.utf_8_decode(data, self._errors, False)
        self._unfinished = data[used:]
        return text

    def finish(self) -> str:
        """U+FFFD for a character that never became whole, or nothing."""
        text = self._unfinished.decode("utf-8", self._errors)
        self._unfinished = b""
        return text
