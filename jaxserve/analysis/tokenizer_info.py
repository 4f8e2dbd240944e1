"""Wiring: a model's tokenizer, read from its files, without building it where that takes seconds (GGUF)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoints.open_checkpoint import Checkpoint
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.model_text import choose_chat_template, eos_ids, named_folder
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.text.gguf_fields import GgufFields
from jaxserve.text.tokenizer_from_folder import tokenizer_from_folder

GGUF_KINDS = {
    "gpt2": "byte-level BPE",
    "llama": "SentencePiece BPE",
    "t5": "SentencePiece unigram",
    "bert": "WordPiece",
}


@dataclass(frozen=True, slots=True)
class TokenizerInfo:
    """eos: the tokens that end a text, by id."""

    kind: str
    vocab_size: int
    eos: dict[int, str]
    has_chat_template: bool


def describe_tokenizer(
    config: EngineConfig, model: ModelConfig, checkpoint: Checkpoint | None, folder: Path | None
) -> TokenizerInfo | None:
    """The tokenizer that the options name, or the model's own; None where there is none."""
    has_template = choose_chat_template(config, checkpoint, folder).source is not None
    named = named_folder(config)
    if named is None and checkpoint is not None and checkpoint.spelling == "gguf":
        return _from_gguf(checkpoint.metadata, model, has_template)
    folder = named or folder
    if folder is None or not (named or (folder / "tokenizer.json").is_file()):
        return None
    tokenizer = tokenizer_from_folder(folder)
    eos = {i: tokenizer.id_to_piece(i) or "" for i in eos_ids(model, tokenizer)}
    return TokenizerInfo(type(tokenizer.backend.model).__name__, tokenizer.vocab_size, eos, has_template)


def _from_gguf(metadata: Mapping[str, Any], model: ModelConfig, has_template: bool) -> TokenizerInfo | None:
    pieces = GgufFields(metadata).texts("tokens")
    if pieces is None:
        return None
    kind, rule = str(metadata.get("tokenizer.ggml.model")), metadata.get("tokenizer.ggml.pre")
    name = GGUF_KINDS.get(kind, kind)
    eos = {i: pieces[i] for i in model.eos_ids if i < len(pieces)}
    return TokenizerInfo(f"{name} ({rule})" if rule else name, len(pieces), eos, has_template)
