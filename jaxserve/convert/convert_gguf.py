"""Wiring: a model of any readable format becomes one GGUF file with quantized matrices."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp

from checkpoints.errors import CheckpointError
from checkpoints.loading.pieces import Progress
from checkpoints.open_checkpoint import Checkpoint, open_checkpoint
from checkpoints.sources import ResolvedSource
from checkpoints.writing.conversion_manifest import identity
from checkpoints.writing.write_blocks import BLOCK_TYPES, write_blocks
from jaxserve.convert.convert_model import leaves_of, rules_of, saved_tree
from jaxserve.convert.gguf_splits import NoVocabulary
from jaxserve.convert.gguf_vocabulary import gguf_vocabulary
from jaxserve.core.errors import ConfigError
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.families.to_gguf import to_gguf
from jaxserve.runner.load_weights import read_config
from jaxserve.text.chat_template import chat_template_from_folder
from jaxserve.text.gguf_fields import PREFIX
from jaxserve.text.tokenizer_from_folder import tokenizer_from_folder

BLOCKS_VERSION = 2  # `general.quantization_version`: of the layout of ggml's blocks
TOKENIZER = "tokenizer."


def convert_to_gguf(
    source: ResolvedSource, path: Path, scheme: str, progress: Progress, *, is_overwritten: bool = False
) -> str | None:
    """Writes `path` in a scheme of `BLOCK_TYPES`; returns why it has no tokenizer, if it has none.

    The file appears when it is complete; an interrupted run goes on after the last complete tensor. For what is in
    memory and for progress see `write_blocks`. is_overwritten: `path` may exist, and another conversion to it may have
    begun. Raises `CheckpointError` and `ConfigError` for what has no such form, and for these two.
    """
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder: name a file")
    if path.exists() and not is_overwritten:
        raise CheckpointError(f"{path} exists: name another file, or --overwrite it")
    if path.resolve() in {file.resolve() for file in source.files}:
        raise CheckpointError(f"{path} is the source itself: name another file")
    with open_checkpoint(source) as checkpoint:
        model = read_config(checkpoint)
        header, tables = to_gguf(model)
        tokenizer, reason = _tokenizer(checkpoint, model)
        tree = saved_tree(model, jnp.dtype(jnp.float32))
        leaves, rules = leaves_of(checkpoint, model, tree), rules_of("gguf", model)
        metadata = {
            "general.name": str(checkpoint.metadata.get("general.name", source.folder.resolve().name)),
            **header,
            "general.quantization_version": BLOCKS_VERSION,
            **tokenizer,
        }
        job = {"source": identity(source.files), "scheme": scheme}
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            types = BLOCK_TYPES[scheme]
            write_blocks(path, types, tree, rules, leaves, metadata, tables, progress, job, is_renewed=is_overwritten)
        except CheckpointError:
            raise
        except (ValueError, OverflowError) as error:  # the source's own metadata may have other numbers
            raise CheckpointError(f"{path} cannot be written: {error}") from error
    return reason


def _tokenizer(checkpoint: Checkpoint, model: ModelConfig) -> tuple[dict[str, Any], str | None]:
    """(metadata, why there is none)."""
    if checkpoint.spelling == "gguf":
        return {key: value for key, value in checkpoint.metadata.items() if key.startswith(TOKENIZER)}, None
    try:
        tokenizer = tokenizer_from_folder(checkpoint.folder)
        return gguf_vocabulary(tokenizer, chat_template_from_folder(checkpoint.folder), model.vocab_size), None
    except (ConfigError, NoVocabulary) as reason:
        ids = {"bos_token_id": model.bos_id, "eos_token_id": next(iter(model.eos_ids), None)}
        return {PREFIX + name: i for name, i in ids.items() if i is not None}, str(reason)
