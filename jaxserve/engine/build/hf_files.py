"""Wiring: the small files of a model's folder: configuration, tokenizer, chat template, ends of texts."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checkpoints.formats.atomic_files import write_json
from checkpoints.open_checkpoint import Checkpoint
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.families import registry
from jaxserve.text.chat_template import ChatTemplate, chat_template_from_gguf
from jaxserve.text.tokenizer import Tokenizer
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf

CONFIG = "config.json"
# Of a Hugging Face folder, copied as they are.
COPIED = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
)
SMALL_FILES = (CONFIG, *COPIED)


def export_source(folder: Path, checkpoint: Checkpoint, model: ModelConfig, dtype: str) -> None:
    """Writes what belongs beside the weights of `checkpoint`, now in `dtype`: its own files, or made of a GGUF file."""
    write_json(folder / CONFIG, _config(checkpoint, model, dtype))
    if checkpoint.spelling == "gguf":
        export_text(folder, tokenizer_from_gguf(checkpoint.metadata), chat_template_from_gguf(checkpoint.metadata))
        return
    for name in COPIED:
        if (checkpoint.folder / name).is_file():
            shutil.copyfile(checkpoint.folder / name, folder / name)


def export_text(folder: Path, tokenizer: Tokenizer, template: ChatTemplate) -> None:
    """tokenizer.json; tokenizer_config.json with special tokens and chat template; generation_config.json with ends."""
    tokenizer.backend.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **template.special_tokens,
    }
    if template.source is not None:
        config["chat_template"] = template.source
    write_json(folder / "tokenizer_config.json", config)
    ends = {"bos_token_id": tokenizer.bos_id, "eos_token_id": list(tokenizer.eos_ids) or None}
    write_json(folder / "generation_config.json", {name: ids for name, ids in ends.items() if ids is not None})


def exported_config(model: ModelConfig, dtype: str) -> dict[str, Any]:
    """config.json of a model that had none."""
    return _with_dtype(registry.to_hf(model), dtype)


def _config(checkpoint: Checkpoint, model: ModelConfig, dtype: str) -> dict[str, Any]:
    """The source's own config.json where it describes the text model alone, whose weights are what is written."""
    if not checkpoint.config or "text_config" in checkpoint.config:
        return exported_config(model, dtype)
    return _with_dtype(checkpoint.config, dtype)


def _with_dtype(config: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    return {**{key: value for key, value in config.items() if key != "torch_dtype"}, "dtype": dtype}
