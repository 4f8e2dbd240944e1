"""Wiring: the small files of a model's folder: configuration, tokenizer, chat template, end-of-sequence ids."""

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checkpoints.formats.atomic_files import write_json
from checkpoints.open_checkpoint import Checkpoint
from jaxserve.core.errors import ConfigError
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.families import registry
from jaxserve.text.chat_template import ChatTemplate, chat_template_from_gguf
from jaxserve.text.tokenizer import Tokenizer
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf

log = logging.getLogger(__name__)

CONFIG = "config.json"
# Files of a Hugging Face folder that are copied unchanged.
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


GgufText = tuple[Tokenizer, ChatTemplate]


def gguf_text(checkpoint: Checkpoint) -> GgufText | None:
    """Of a GGUF file's header. None: it has none that can be read, which is logged, or the checkpoint is a folder."""
    if checkpoint.spelling != "gguf":
        return None
    try:
        return tokenizer_from_gguf(checkpoint.metadata), chat_template_from_gguf(checkpoint.metadata)
    except ConfigError as reason:
        log.warning("the folder gets no tokenizer, load it with one of another folder: %s", reason)
        return None


def export_source(
    folder: Path,
    checkpoint: Checkpoint,
    model: ModelConfig,
    dtype: str,
    text: GgufText | None,
    quantization: Mapping[str, Any] | None = None,
) -> None:
    """Writes the small files of a checkpoint's folder, now in `dtype`: copied, or made from a GGUF header.

    text: `gguf_text` of the checkpoint. quantization: the `quantization_config` of its weights; None: they are plain.
    """
    config = _config(checkpoint, model, dtype)
    write_json(folder / CONFIG, config if quantization is None else config | {"quantization_config": quantization})
    if checkpoint.spelling == "gguf":
        if text is not None:
            export_text(folder, *text)
        return
    for name in COPIED:
        if (checkpoint.folder / name).is_file():
            shutil.copyfile(checkpoint.folder / name, folder / name)


def export_text(folder: Path, tokenizer: Tokenizer, template: ChatTemplate) -> None:
    """Writes tokenizer.json, tokenizer_config.json with the chat template, and generation_config.json with ends."""
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
    """The config.json of a model without one."""
    return _with_dtype(registry.to_hf(model), dtype)


def _config(checkpoint: Checkpoint, model: ModelConfig, dtype: str) -> dict[str, Any]:
    """The source's own config.json, unless it also describes parts whose weights are not written."""
    if not checkpoint.config or "text_config" in checkpoint.config:
        return exported_config(model, dtype)
    return _with_dtype(checkpoint.config, dtype)


def _with_dtype(config: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    return {**{key: value for key, value in config.items() if key != "torch_dtype"}, "dtype": dtype}
