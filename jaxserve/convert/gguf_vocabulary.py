"""Host: `gguf_vocabulary`: a tokenizer as metadata of a GGUF file, which `tokenizer_from_gguf` and llama.cpp read."""

import json
from collections.abc import Sequence, Set
from typing import Any

from jaxserve.convert.gguf_scores import adds_space, scores_of
from jaxserve.convert.gguf_splits import NoVocabulary, splits_name
from jaxserve.core.errors import ConfigError
from jaxserve.text.chat_template import ChatTemplate
from jaxserve.text.gguf_fields import PREFIX
from jaxserve.text.token_bytes import BYTE_PIECE, SPACE
from jaxserve.text.tokenizer import Tokenizer
from jaxserve.text.tokenizer_from_gguf import CONTROL, UNKNOWN, USER_DEFINED, tokenizer_from_gguf

NORMAL, UNUSED, BYTE = 1, 5, 6
END_NAMES = ("eos", "eot", "eom")
_OPTIONS = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
_FLAGS = ("lstrip", "rstrip", "single_word")
PROBE = "a"


def gguf_vocabulary(tokenizer: Tokenizer, template: ChatTemplate, vocab_size: int) -> dict[str, Any]:
    """Metadata of a tokenizer with its chat template; ids up to vocab_size without a token are unused ones.

    Raises `NoVocabulary` for one that GGUF cannot describe, so that ids or ends of texts would be others.
    """
    state: dict[str, Any] = json.loads(tokenizer.backend.to_str())
    model: dict[str, Any] = state["model"]
    if model["type"] != "BPE" or any(model[name] for name in _OPTIONS):
        raise NoVocabulary(f"only byte-pair encodings without options have a form in GGUF, not {model['type']}")
    pieces, types = _pieces(state, vocab_size, tokenizer.special_ids)
    if model["byte_fallback"]:
        fields = {"add_space_prefix": adds_space(state), "scores": scores_of(pieces, types, model["merges"])}
        # As other writers do, with spaces where a token of its own has them.
        pieces = [
            piece.replace(SPACE, " ") if type_ == USER_DEFINED else piece
            for piece, type_ in zip(pieces, types, strict=True)
        ]
        fields = {"model": "llama", "tokens": pieces, "token_type": types, **fields}
    else:
        merges = [" ".join(pair) for pair in model["merges"]]
        fields = {"model": "gpt2", "pre": splits_name(state), "tokens": pieces, "token_type": types, "merges": merges}
    fields |= _ids(tokenizer, template)
    metadata = {PREFIX + name: value for name, value in fields.items()}
    if template.source is not None:
        metadata["tokenizer.chat_template"] = template.source
    _check(tokenizer, metadata)
    return metadata


def _pieces(state: dict[str, Any], vocab_size: int, special_ids: Set[int]) -> tuple[list[str], list[int]]:
    unknown = state["model"]["unk_token"]
    found: dict[int, tuple[str, int]] = {}
    for piece, i in state["model"]["vocab"].items():
        is_byte = state["model"]["byte_fallback"] and BYTE_PIECE.fullmatch(piece)
        found[i] = piece, UNKNOWN if piece == unknown else BYTE if is_byte else NORMAL
    for token in state["added_tokens"]:
        if any(token[flag] for flag in _FLAGS):
            raise NoVocabulary(f"its token {token['content']!r} takes spaces around it, which GGUF cannot say")
        if token["content"] != unknown:
            found[token["id"]] = token["content"], CONTROL if token["id"] in special_ids else USER_DEFINED
    if max(found) >= vocab_size:
        raise NoVocabulary(f"it has an id {max(found)}, and the model a vocabulary of {vocab_size}")
    rows = [found.get(i, (f"[PAD{i}]", UNUSED)) for i in range(vocab_size)]
    pieces = [piece for piece, _ in rows]
    if len(set(pieces)) < len(pieces):
        raise NoVocabulary("it has a token twice")
    return pieces, [type_ for _, type_ in rows]


def _ids(tokenizer: Tokenizer, template: ChatTemplate) -> dict[str, Any]:
    """Special ids, and whether they surround a text. The end that the template names comes first."""

    def named(name: str) -> int | None:
        piece = template.special_tokens.get(name)
        return None if piece is None else tokenizer.backend.token_to_id(piece)

    first = named("eos_token")
    ends = [i for i in dict.fromkeys([first, *tokenizer.eos_ids]) if i is not None]
    ids = dict(zip(END_NAMES, ends, strict=False))
    others = {"bos": tokenizer.bos_id, "unknown": named("unk_token"), "padding": named("pad_token")}
    ids |= {name: i for name, i in others.items() if i is not None}
    before, after = _around(tokenizer.encode(PROBE), tokenizer.encode(PROBE, add_special_tokens=False))
    if before not in ([], [ids.get("bos")]) or after not in ([], [ids.get("eos")]):
        raise NoVocabulary("it surrounds texts with other tokens than those that begin and end them")
    flags = {"add_bos_token": bool(before), "add_eos_token": bool(after)}
    return {f"{name}_token_id": i for name, i in ids.items()} | flags


def _around(whole: Sequence[int], plain: Sequence[int]) -> tuple[list[int], list[int]]:
    start = next((i for i in range(len(whole)) if whole[i : i + len(plain)] == plain), None)
    if start is None:
        raise NoVocabulary("it changes the tokens of a text that it surrounds")
    return list(whole[:start]), list(whole[start + len(plain) :])


def _check(tokenizer: Tokenizer, metadata: dict[str, Any]) -> None:
    try:
        read = tokenizer_from_gguf(metadata)
    except ConfigError as error:
        raise NoVocabulary(str(error)) from error
    if lost := [tokenizer.id_to_piece(i) for i in tokenizer.eos_ids if i not in read.eos_ids]:
        raise NoVocabulary(f"GGUF names at most {len(END_NAMES)} tokens that end a text, and {lost[0]!r} is one more")
