"""Host: a `Tokenizer` from the metadata of a GGUF file, whose keys begin with `tokenizer.`.

The ids are those of the tokenizer.json that the model was published with. GGUF keeps the vocabulary, but of the rule
that cuts text only the name (`pre_tokenizers`), and no SentencePiece merges: they follow from the pieces and scores.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxserve.core.errors import ConfigError
from jaxserve.text.pre_tokenizers import pre_tokenizer_named
from jaxserve.text.token_bytes import SPACE
from jaxserve.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import tokenizers

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4  # tokenizer.ggml.token_type; 1 is normal, 5 unused, 6 a byte
MAX_VOCAB_SIZE = 1 << 22
MAX_PIECE_CHARS = 1 << 12
# GGUF has no list of end tokens: besides the one it names, tokens of these names end a turn.
END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|return|>", "<end_of_utterance>")


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """metadata: the file's keys with plain scalars, lists or arrays. Raises `ConfigError` for what is not supported."""
    pieces, kinds = _pieces(metadata)
    model = metadata.get("tokenizer.ggml.model")
    if model == "gpt2":
        backend, adds_bos = _byte_level(metadata, pieces)
    elif model == "llama":
        # Runs of spaces are user-defined tokens, spelled with real spaces in the file and met as U+2581 by the merges.
        pieces = [p.replace(" ", SPACE) if kind == USER_DEFINED else p for p, kind in zip(pieces, kinds, strict=True)]
        backend, adds_bos = _sentencepiece(metadata, pieces, kinds), True
    else:
        raise ConfigError(
            f"the GGUF file's tokenizer is of the kind {model!r}; supported are 'gpt2' (byte-level BPE) and 'llama' "
            "(SentencePiece): give the folder of the original model as the tokenizer instead",
            "tokenizer",
        )
    _add_tokens(backend, pieces, kinds)

    def id_of(name: str) -> int | None:
        token_id = metadata.get(f"tokenizer.ggml.{name}_token_id")
        return None if token_id is None or not 0 <= int(token_id) < len(pieces) else int(token_id)

    bos_id, eos_id = id_of("bos"), id_of("eos")
    prefix = bos_id if metadata.get("tokenizer.ggml.add_bos_token", adds_bos) else None
    suffix = eos_id if metadata.get("tokenizer.ggml.add_eos_token", False) else None
    _surround(backend, prefix, suffix)
    turn_ends = [backend.token_to_id(piece) for piece in END_OF_TURN]
    ends = [eos_id, id_of("eot"), id_of("eom"), *(i for i in turn_ends if i is not None and kinds[i] == CONTROL)]
    return Tokenizer(backend, bos_id=bos_id, eos_ids=[i for i in ends if i is not None])


def _pieces(metadata: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    pieces = metadata.get("tokenizer.ggml.tokens")
    if pieces is None:
        raise ConfigError("the GGUF file holds no tokenizer: give a folder with a tokenizer.json", "tokenizer")
    pieces = list(map(str, pieces))
    kinds = list(map(int, metadata.get("tokenizer.ggml.token_type", [1] * len(pieces))))
    if not 0 < len(pieces) <= MAX_VOCAB_SIZE or len(kinds) != len(pieces):
        message = f"the GGUF file's vocabulary has {len(pieces)} tokens and {len(kinds)} token types"
        raise ConfigError(message, "tokenizer")
    if max(map(len, pieces)) > MAX_PIECE_CHARS:
        raise ConfigError(
            f"the GGUF file's vocabulary has a token longer than {MAX_PIECE_CHARS} characters", "tokenizer"
        )
    return pieces, kinds


def _byte_level(metadata: Mapping[str, Any], pieces: list[str]) -> tuple["tokenizers.Tokenizer", bool]:
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers

    rule = pre_tokenizer_named(str(metadata.get("tokenizer.ggml.pre", "default")))
    vocab = {piece: i for i, piece in enumerate(pieces)}
    merges = []
    for merge in map(str, metadata.get("tokenizer.ggml.merges", [])):
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


def _sentencepiece(metadata: Mapping[str, Any], pieces: list[str], kinds: list[int]) -> "tokenizers.Tokenizer":
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers

    scores = metadata.get("tokenizer.ggml.scores")
    if scores is None or len(scores) != len(pieces):
        raise ConfigError("the GGUF file's SentencePiece vocabulary lacks a score for each token", "tokenizer")
    unknown_id = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    adds_space = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    backend = Backend(
        models.BPE(
            {piece: i for i, piece in enumerate(pieces)},
            merges_of(pieces, kinds, [float(score) for score in scores]),
            unk_token=pieces[unknown_id] if 0 <= unknown_id < len(pieces) else None,
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


def merges_of(pieces: Sequence[str], kinds: Sequence[int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """All pairs of pieces that join to a piece, best first: SentencePiece merges whatever joins to the highest score.

    User-defined pieces come before all others, as they are taken whole wherever they stand, and what begins with the
    longest piece comes first among them: of 40 spaces, where the vocabulary has runs of up to 31, the first 31 are one
    token and the rest another. Equal scores go by id.
    Takes 1 s for Gemma's 262,144 pieces and 514,906 pairs on one core: the plain loop, for vectorised look-ups of
    strings of unequal length are slower in numpy.
    """
    vocab = set(pieces)
    order = sorted(range(len(pieces)), key=lambda i: (kinds[i] != USER_DEFINED, -scores[i], i))
    num_whole = kinds.count(USER_DEFINED)
    whole = [pair for i in order[:num_whole] for pair in _pairs(pieces[i], vocab)]
    whole.sort(key=lambda pair: (-len(pair[0]), -len(pair[1])))
    return whole + [pair for i in order[num_whole:] for pair in _pairs(pieces[i], vocab)]


def _pairs(piece: str, vocab: set[str]) -> Iterator[tuple[str, str]]:
    """All ways to make the piece of two, the longest left part first."""
    for cut in range(len(piece) - 1, 0, -1):
        left = piece[:cut]
        if left in vocab and (right := piece[cut:]) in vocab:
            yield left, right


def _add_tokens(backend: "tokenizers.Tokenizer", pieces: list[str], kinds: list[int]) -> None:
    from tokenizers import AddedToken

    def added(*wanted: int) -> list[AddedToken]:
        is_special = USER_DEFINED not in wanted
        found = (p for p, kind in zip(pieces, kinds, strict=True) if kind in wanted)
        return [
            AddedToken(p, normalized=False, special=is_special) for p in found if backend.token_to_id(p) is not None
        ]

    backend.add_special_tokens(added(CONTROL, UNKNOWN))
    backend.add_tokens(added(USER_DEFINED))


def _surround(backend: "tokenizers.Tokenizer", bos_id: int | None, eos_id: int | None) -> None:
    from tokenizers import processors

    names = [name for name, token_id in (("bos", bos_id), ("$A", 0), ("eos", eos_id)) if token_id is not None]
    ids = {"bos": bos_id, "eos": eos_id}
    special = [(name, ids[name]) for name in names if name != "$A"]
    if special:
        backend.post_processor = processors.TemplateProcessing(single=names, special_tokens=special)
