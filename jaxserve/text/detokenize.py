"""Host: `Detokenizer`: converts token ids to text incrementally, in whole characters.

Takes 0.4 us per token: a list look-up, a join, one call of the UTF-8 decoder. The tokenizer's own `decode_batch` takes
9 to 20 times as long, and its `DecodeStream` raises on some ids of byte-fallback vocabularies and repeats the whole
prompt if the prompt ends inside a character.
"""

import codecs
from collections.abc import Sequence
from functools import lru_cache

from jaxserve.text.tokenizer import Tokenizer

MAX_UTF8_BYTES = 4
CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
MAX_TABLES = 4  # of tables with some special tokens, each as long as the vocabulary; a server needs one or two


class Detokenizer:
    """The tables shared by all text streams of a model. vocab_size: the model's, which may exceed the tokenizer's."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int = 0):
        decoding = tokenizer.decoding
        padding = [b""] * max(0, vocab_size - len(decoding.raw))
        self._all = decoding.raw + padding
        self._visible = list(self._all)
        for special_id in tokenizer.special_ids:
            self._visible[special_id] = b""
        self._errors = decoding.errors
        self._strips_space = decoding.strips_space
        self._table_showing = lru_cache(MAX_TABLES)(self._make_table)

    def stream(
        self, prompt_ids: Sequence[int] = (), skip_special_tokens: bool = True, shown_special_ids: tuple[int, ...] = ()
    ) -> "TextStream":
        """The stream of the text after a prompt. shown_special_ids: special tokens that are not skipped.

        Prompt and output together read as if the tokenizer decoded them at once: " Paris." follows "is", though a
        SentencePiece tokenizer drops the space of an output decoded alone. A character that begins in the prompt and
        ends in the output is returned whole with the output.
        """
        table = self._table_showing(shown_special_ids) if skip_special_tokens else self._all
        tail = b""
        for token_id in reversed(prompt_ids):
            tail = table[token_id] + tail
            if len(tail) >= MAX_UTF8_BYTES:
                break
        is_first = not tail
        tail = tail.lstrip(CONTINUATION_BYTES)
        unfinished = tail[codecs.utf_8_decode(tail, self._errors, False)[1] :]
        return TextStream(table, self._errors, unfinished, strips_space=self._strips_space and is_first)

    def _make_table(self, shown_special_ids: tuple[int, ...]) -> list[bytes]:
        if not shown_special_ids:
            return self._visible
        table = list(self._visible)
        for token_id in shown_special_ids:
            table[token_id] = self._all[token_id]
        return table

    def token_text(self, token_id: int) -> str:
        """One token alone, special or not, with U+FFFD for the bytes of incomplete characters."""
        return self._all[token_id].decode("utf-8", self._errors)


class TextStream:
    """The text of one sequence, returned piece by piece by `push` and completed by `finish`."""

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
        """U+FFFD for an incomplete last character, else nothing."""
        text = self._unfinished.decode("utf-8", self._errors)
        self._unfinished = b""
        return text
