"""Host: a `Tokenizer` from the metadata of a GGUF file, whose keys begin with `tokenizer.`.

Texts get the same ids as with the tokenizer.json that the model was published with. GGUF stores the vocabulary, the
name of the splitting rule (`pre_tokenizers`) and no SentencePiece merges, which follow from the pieces and scores.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxserve.core.errors import ConfigError
from jaxserve.text.gguf_fields import GgufFields
from jaxserve.text.pre_tokenizers import pre_tokenizer_named
from jaxserve.text.token_bytes import SPACE
from jaxserve.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import tokenizers

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4  # tokenizer.ggml.token_type; 1 is normal, 5 unused, 6 a byte
MAX_VOCAB_SIZE = 1 << 22
MAX_PIECE_CHARS = 1 << 12
# GGUF names one end token; control tokens with these texts end a turn too.
END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|return|>", "<end_of_utterance>")


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer in a GGUF file's metadata; raises `ConfigError` where it is unsupported or malformed."""
    fields = GgufFields(metadata)
    pieces, token_types = _pieces(fields)
    model = fields.text("model")
    if model == "gpt2":
        backend, adds_bos = _byte_level(fields, pieces)
    elif model == "llama":
        # Runs of spaces are user-defined tokens: with real spaces in the file, with U+2581 in the merges.
        pieces = [
            piece.replace(" ", SPACE) if token_type == USER_DEFINED else piece
            for piece, token_type in zip(pieces, token_types, strict=True)
        ]
        backend, adds_bos = _sentencepiece(fields, pieces, token_types), True
    else:
        raise ConfigError(
            f"the GGUF file's tokenizer model is {model!r}; supported are 'gpt2' (byte-level BPE) and 'llama' "
            "(SentencePiece): set tokenizer to the folder of the original model",
            "tokenizer",
        )
    _add_tokens(backend, pieces, token_types)

    bos_id, eos_id, eot_id, eom_id = (fields.token_id(name, len(pieces)) for name in ("bos", "eos", "eot", "eom"))
    prefix = bos_id if fields.flag("add_bos_token", adds_bos) else None
    suffix = eos_id if fields.flag("add_eos_token", False) else None
    _surround(backend, prefix, suffix)
    turn_ends = [backend.token_to_id(piece) for piece in END_OF_TURN]
    ends = [eos_id, eot_id, eom_id, *(i for i in turn_ends if i is not None and token_types[i] == CONTROL)]
    return Tokenizer(backend, bos_id=bos_id, eos_ids=[i for i in ends if i is not None])


def _pieces(fields: GgufFields) -> tuple[list[str], list[int]]:
    pieces, types = fields.texts("tokens"), fields.integers("token_type")
    if pieces is None:
        raise ConfigError(
            "the GGUF file holds no tokenizer: set tokenizer to a folder with a tokenizer.json", "tokenizer"
        )
    token_types: list[int] = [1] * len(pieces) if types is None else types
    if not 0 < len(pieces) <= MAX_VOCAB_SIZE or len(token_types) != len(pieces):
        message = f"the GGUF file's vocabulary has {len(pieces)} tokens and {len(token_types)} token types"
        raise ConfigError(message, "tokenizer")
    if max(map(len, pieces)) > MAX_PIECE_CHARS:
        raise ConfigError(
            f"the GGUF file's vocabulary has a token longer than {MAX_PIECE_CHARS} characters", "tokenizer"
        )
    return pieces, token_types


def _byte_level(fields: GgufFields, pieces: list[str]) -> tuple["tokenizers.Tokenizer", bool]:
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers

    rule = pre_tokenizer_named(fields.text("pre") or "default")
    vocab = {piece: i for i, piece in enumerate(pieces)}
    merges: list[tuple[str, str]] = []
    for merge in fields.texts("merges") or []:
        left, _, right = merge.partition(" ")
        if left not in vocab or right not in vocab or left + right not in vocab:
            raise ConfigError(f"the GGUF file has a merge of pieces outside its vocabulary: {merge!r}", "tokenizer")
        merges.append((left, right))
    backend = Backend(models.BPE(vocab, merges, ignore_merges=rule.ignore_merges))
    if rule.is_nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = rule.build()
    backend.decoder = decoders.ByteLevel()
    return backend, rule.adds_bos


def _sentencepiece(fields: GgufFields, pieces: list[str], token_types: list[int]) -> "tokenizers.Tokenizer":
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers

    scores = fields.floats("scores")
    if scores is None or len(scores) != len(pieces):
        raise ConfigError("the GGUF file's SentencePiece vocabulary lacks a score for each token", "tokenizer")
    unknown_id = fields.token_id("unknown", len(pieces))
    adds_space = fields.flag("add_space_prefix", True)
    backend = Backend(
        models.BPE(
            {piece: i for i, piece in enumerate(pieces)},
            merges_of(pieces, token_types, scores),
            unk_token=None if unknown_id is None else pieces[unknown_id],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    to_pieces = normalizers.Replace(" ", SPACE)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), to_pieces]) if adds_space else to_pieces
    strip = [decoders.Strip(" ", 1, 0)] if adds_space else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return backend


def merges_of(pieces: Sequence[str], token_types: Sequence[int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """All pairs of pieces whose concatenation is a piece, best first: SentencePiece merges to the highest score.

    User-defined pieces come first, since they always become one token; among them the pair with the longest left piece
    comes first: of 40 spaces, where the vocabulary has runs of up to 31, the first 31 are one token and the rest
    another. Equal scores are ordered by id. Takes 1 s on one core for Gemma's 262,144 pieces and 514,906 pairs; the
    loop is plain Python, since numpy is slower at look-ups of strings of unequal length.
    """
    vocab = set(pieces)
    order = sorted(range(len(pieces)), key=lambda i: (token_types[i] != USER_DEFINED, -scores[i], i))
    num_whole = token_types.count(USER_DEFINED)
    whole = [pair for i in order[:num_whole] for pair in _pairs(pieces[i], vocab)]
    whole.sort(key=lambda pair: (-len(pair[0]), -len(pair[1])))
    return whole + [pair for i in order[num_whole:] for pair in _pairs(pieces[i], vocab)]


def _pairs(piece: str, vocab: set[str]) -> Iterator[tuple[str, str]]:
    """All divisions of the piece into two pieces, the longest left one first."""
    for cut in range(len(piece) - 1, 0, -1):
        left = piece[:cut]
        if left in vocab and (right := piece[cut:]) in vocab:
            yield left, right


def _add_tokens(backend: Any, pieces: list[str], token_types: list[int]) -> None:
    from tokenizers import AddedToken

    def of_types(*types: int) -> list[AddedToken]:
        is_special = USER_DEFINED not in types
        found = (piece for piece, token_type in zip(pieces, token_types, strict=True) if token_type in types)
        return [
            AddedToken(piece, normalized=False, special=is_special)
            for piece in found
            if backend.token_to_id(piece) is not None
        ]

    backend.add_special_tokens(of_types(CONTROL, UNKNOWN))
    backend.add_tokens(of_types(USER_DEFINED))


def _surround(backend: "tokenizers.Tokenizer", bos_id: int | None, eos_id: int | None) -> None:
    from tokenizers import processors

    names = [name for name, token_id in (("bos", bos_id), ("$A", 0), ("eos", eos_id)) if token_id is not None]
    ids = {"bos": bos_id, "eos": eos_id}
    special = [(name, ids[name]) for name in names if name != "$A"]
    if special:
        backend.post_processor = processors.TemplateProcessing(single=names, special_tokens=special)
