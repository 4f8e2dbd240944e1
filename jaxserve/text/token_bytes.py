"""Host: the bytes of each token, read once from a tokenizer's decoder, so that detokenizing is a table look-up.

Two decoders cover the supported families: byte-level BPE, whose pieces spell bytes in an alphabet of 256 characters
(Radford et al. 2019, GPT-2), and SentencePiece with byte fallback, whose pieces are text with U+2581 for the space, or
`<0xNN>` for a byte (Kudo and Richardson 2018).
"""

import codecs
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jaxserve.core.errors import ConfigError

if TYPE_CHECKING:
    import tokenizers

SPACE = "\u2581"
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
REPLACE_EACH = "jaxserve.replace_each"


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error(REPLACE_EACH, _replace_each_byte)


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """The bytes of all tokens, and how they become text.

    raw: the bytes of each id; empty for an unused id. errors: the codec's handler of malformed UTF-8. Byte-level: one
    U+FFFD for each maximal part of a character, as in Rust and Python. Byte fallback: one for each byte, as in
    SentencePiece. (tokenizers replaces a whole run of byte tokens if any byte of it is malformed: a stream would have
    to buffer every run, even a newline.) strips_space: whether one space at the beginning of the text is dropped, which
    SentencePiece has added.
    """

    raw: list[bytes]
    errors: str
    strips_space: bool


def read_token_bytes(backend: "tokenizers.Tokenizer", vocab_size: int) -> TokenBytes:
    """The table of a tokenizer; raises `ConfigError` where its decoder does more than concatenate bytes."""
    pieces = [backend.id_to_token(i) or "" for i in range(vocab_size)]
    spec: dict[str, Any] = (
        json.loads(backend.decoder.__getstate__()) if backend.decoder is not None else {"type": "none"}
    )
    steps = spec["decoders"] if spec["type"] == "Sequence" else [spec]
    types = [step["type"] for step in steps]
    if types == ["ByteLevel"]:
        return TokenBytes(_byte_level(pieces), "replace", strips_space=False)
    if "ByteFallback" in types and set(types) <= {"Replace", "ByteFallback", "Fuse", "Strip"}:
        replacements = [_replacement(step) for step in steps if step["type"] == "Replace"]
        strips = [step for step in steps if step["type"] == "Strip"]
        if all((step["content"], step["start"], step["stop"]) == (" ", 1, 0) for step in strips):
            return TokenBytes(_byte_fallback(pieces, replacements), REPLACE_EACH, strips_space=bool(strips))
    raise ConfigError(
        f"the tokenizer's decoder ({' + '.join(types)}) is neither byte-level nor byte-fallback: its text cannot be "
        "streamed; use a model with a byte-level BPE or SentencePiece tokenizer"
    )


def byte_alphabet() -> dict[int, str]:
    """Byte → the printable character that spells it in byte-level BPE: itself where it is printable Latin-1."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + i) for i, byte in enumerate(others)}


def _byte_level(pieces: Iterable[str]) -> list[bytes]:
    letter_of = byte_alphabet()
    # A letter becomes the Latin-1 character of its byte. The other Latin-1 characters become one outside Latin-1, so a
    # piece with any of them fails to encode and is treated as plain text.
    to_latin1 = dict.fromkeys(range(256), "\uffff") | {ord(letter): chr(byte) for byte, letter in letter_of.items()}

    def bytes_of(piece: str) -> bytes:
        try:
            return piece.translate(to_latin1).encode("latin-1")
        except UnicodeEncodeError:
            return piece.encode()

    return [bytes_of(piece) for piece in pieces]


def _byte_fallback(pieces: Iterable[str], replacements: list[tuple[str, str]]) -> list[bytes]:
    def bytes_of(piece: str) -> bytes:
        if piece.startswith("<0x") and (byte := BYTE_PIECE.fullmatch(piece)):
            return bytes.fromhex(byte[1])
        for old, new in replacements:
            piece = piece.replace(old, new)
        return piece.encode()

    return [bytes_of(piece) for piece in pieces]


def _replacement(step: dict[str, Any]) -> tuple[str, str]:
    if "String" not in step["pattern"]:
        raise ConfigError(f"the tokenizer's decoder has a replacement pattern that is not supported: {step['pattern']}")
    return step["pattern"]["String"], step["content"]
