"""Host: `GrammarVocabulary`: what grammars need to know of a tokenizer, as a file that several processes map.

The file is anonymous memory, written once and inherited by each grammar process: a restarted process reads it again
and the engine copies nothing.
"""

import json
import os
import weakref
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

SPECIAL_MARKER = 0xFF  # with this byte, which no UTF-8 has, llguidance begins the names of special tokens


@dataclass(frozen=True)
class GrammarVocabulary:
    """token_bytes: the bytes of each id; ids that no grammar may use (special, unused) have b"". vocab_size: columns of
    the logits, at least as many; ids from len(token_bytes) on are padding. tokenizer_json: the tokenizer as the
    `tokenizers` package writes it, to turn forced bytes into the tokens that the tokenizer makes of them; None: into
    the longest tokens that fit.
    """

    token_bytes: Sequence[bytes]
    vocab_size: int
    tokenizer_json: str | None = None

    @property
    def num_words(self) -> int:
        """32-bit words of a mask."""
        return -(-self.vocab_size // 32)

    @property
    def num_row_words(self) -> int:
        """32-bit words of a row in shared memory, which has one more column: that the text may end."""
        return -(-(self.vocab_size + 1) // 32)

    @cached_property
    def file(self) -> int:
        """The descriptor of a file with this record, for `read_vocabulary`; it lives as long as this object."""
        lengths = array("I", map(len, self.token_bytes))
        text = "" if self.tokenizer_json is None else self.tokenizer_json
        tokenizer = text.encode()
        head = json.dumps(
            {
                "num_tokens": len(lengths),
                "vocab_size": self.vocab_size,
                "tokenizer_bytes": None if self.tokenizer_json is None else len(tokenizer),
            }
        ).encode()
        descriptor = os.memfd_create("vocabulary")
        weakref.finalize(self, os.close, descriptor)
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(len(head).to_bytes(4, "little") + head + lengths.tobytes())
            file.write(b"".join(self.token_bytes) + tokenizer)
        return descriptor


def usable_bytes(token_bytes: Sequence[bytes], special_ids: Sequence[int] | frozenset[int]) -> list[bytes]:
    """The bytes of tokens, empty for those that no grammar may use: special tokens, and bytes that no text has."""
    hidden = set(special_ids)
    return [b"" if i in hidden or data[:1] == bytes([SPECIAL_MARKER]) else data for i, data in enumerate(token_bytes)]


def read_vocabulary(descriptor: int) -> GrammarVocabulary:
    """The record in a file that `GrammarVocabulary.file` wrote."""
    data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    start = 4 + int.from_bytes(data[:4], "little")
    head = json.loads(data[4:start])
    lengths = array("I")
    end = start + head["num_tokens"] * lengths.itemsize
    lengths.frombytes(data[start:end])
    tokens: list[bytes] = []
    for length in lengths:
        tokens.append(data[end : end + length])
        end += length
    size = head["tokenizer_bytes"]
    text = None if size is None else data[end : end + size].decode()
    return GrammarVocabulary(tokens, head["vocab_size"], text)
