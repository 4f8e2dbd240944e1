"""Host: `Tokenizer`: text to token ids and back; built by `tokenizer_from_folder` or `tokenizer_from_gguf`."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from jaxserve.core.errors import RequestError
from jaxserve.text.token_bytes import TokenBytes, read_token_bytes

if TYPE_CHECKING:
    import tokenizers


class Tokenizer:
    """One `tokenizers.Tokenizer` (the `backend`) with the ids of its special tokens.

    vocab_size: 1 + the highest id; the model's vocabulary may be padded beyond it. eos_ids: the ids that end a text or
    a turn. bos_id: the id that begins a text, or None. special_ids: ids that `decode` leaves out where special tokens
    are skipped; those that are special in the backend are always included. plain_tokens: special tokens that stay text
    where users spell them.
    """

    plain_tokens: tuple[str, ...] = ()

    def __init__(
        self,
        backend: "tokenizers.Tokenizer",
        *,
        eos_ids: Iterable[int] = (),
        bos_id: int | None = None,
        special_ids: Iterable[int] = (),
    ):
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        added = backend.get_added_tokens_decoder()
        size = backend.get_vocab_size(with_added_tokens=True)
        self.vocab_size = max([size, *(i + 1 for i in added)])
        self.eos_ids = tuple(dict.fromkeys(eos_ids))
        self.bos_id = bos_id
        self.special_ids = frozenset([*special_ids, *(i for i, token in added.items() if token.special)])

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text; special tokens spelled in the text become their ids. Holds the GIL throughout."""
        check_unicode(text)
        return self.backend.encode(text, add_special_tokens=add_special_tokens).ids

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        """The same for many texts, in parallel and without the GIL; use it in threads for a single long text too."""
        for text in texts:
            check_unicode(text)
        return [e.ids for e in self.backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)]

    def encode_rendered(self, texts: Sequence[str], add_special_tokens: bool = False) -> list[list[int]]:
        """The same for texts that a chat template rendered for `plain_tokens`."""
        return self.encode_batch(texts, add_special_tokens)

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of a whole sequence; ids outside the vocabulary add nothing."""
        raw, hidden = self.token_bytes, self.special_ids if skip_special_tokens else frozenset[int]()
        data = b"".join([raw[i] for i in ids if 0 <= i < len(raw) and i not in hidden])
        return data.removeprefix(b" " if self.decoding.strips_space else b"").decode("utf-8", self.decoding.errors)

    @property
    def token_bytes(self) -> list[bytes]:
        """The bytes of each id, [vocab_size]."""
        return self.decoding.raw

    @cached_property
    def max_token_bytes(self) -> int:
        """The length of the longest token: a text of n bytes has at least n / max_token_bytes tokens."""
        return max(map(len, self.token_bytes))

    @cached_property
    def decoding(self) -> TokenBytes:
        return read_token_bytes(self.backend, self.vocab_size)

    def id_to_piece(self, token_id: int) -> str | None:
        """The token as spelled in the vocabulary."""
        return self.backend.id_to_token(token_id) if token_id >= 0 else None

    def piece_to_id(self, piece: str) -> int | None:
        """The id of a token as spelled in the vocabulary."""
        return self.backend.token_to_id(piece)


def check_unicode(text: str, param: str = "prompt") -> None:
    """Raise `RequestError` for text that UTF-8 cannot represent. param: where the text stands."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        where = "the prompt has" if param == "prompt" else f"{param} has a text with"
        message = f"{where} half of a UTF-16 surrogate pair at character {error.start}: it is not valid text"
        raise RequestError(message, param) from None
