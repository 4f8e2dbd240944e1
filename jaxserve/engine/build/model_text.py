"""Wiring: `ModelText`: the tokenizer, chat template, sampling defaults and end-of-sequence ids of a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from checkpoints.open_checkpoint import Checkpoint
from jaxserve.core.errors import ConfigError, RequestError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.core.options.speculative_config import PARAM
from jaxserve.engine.inputs.chat_renderer import named_template, read_template
from jaxserve.models.config.config_keys import token_ids
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.text.chat_template import ChatTemplate, chat_template_from_folder, chat_template_from_gguf
from jaxserve.text.folder_json import read_json
from jaxserve.text.plain_text_tokenizer import PlainTextTokenizer
from jaxserve.text.tokenizer import Tokenizer
from jaxserve.text.tokenizer_from_folder import tokenizer_from_folder
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf

NO_DEFAULTS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ModelText:
    """What turns tokens into text. generation_config: sampling defaults of the model's folder, empty without any."""

    tokenizer: Tokenizer | None
    chat_template: ChatTemplate
    generation_config: Mapping[str, Any]


def choose_text(config: EngineConfig, checkpoint: Checkpoint | None, folder: Path | None) -> ModelText:
    """By the options, otherwise by the model's own files."""
    return ModelText(
        choose_tokenizer(config, checkpoint, folder),
        choose_chat_template(config, checkpoint, folder),
        {} if folder is None else read_json(folder / "generation_config.json"),
    )


def choose_tokenizer(config: EngineConfig, checkpoint: Checkpoint | None, folder: Path | None) -> Tokenizer | None:
    """The tokenizer that the option names, or the model's own; None where there is neither or none is wanted."""
    tokenizer = None if config.skip_tokenizer_init else _tokenizer(config, checkpoint, folder)
    if not config.escape_special_tokens:
        return tokenizer
    if tokenizer is None:
        raise ConfigError("escape_special_tokens needs a tokenizer: leave it out", "escape_special_tokens")
    return PlainTextTokenizer(tokenizer)


def own_tokenizer(checkpoint: Checkpoint | None, folder: Path | None) -> Tokenizer | None:
    """The tokenizer of a model's own files, if they have one."""
    if checkpoint is not None and checkpoint.spelling == "gguf":
        return tokenizer_from_gguf(checkpoint.metadata)
    if folder is None or not (folder / "tokenizer.json").is_file():
        return None
    return tokenizer_from_folder(folder)


def check_same_tokens(tokenizer: Tokenizer, draft: Tokenizer | None) -> None:
    """Raises ConfigError unless each id stands for the same token in a model and its draft model, where this has a
    tokenizer."""
    if draft is None:
        return
    own, other = tokenizer.token_bytes, draft.token_bytes
    different = next((i for i, (a, b) in enumerate(zip(own, other, strict=False)) if a != b), None)
    if different is None and len(own) == len(other):
        return
    at = "" if different is None else f"; token {different} is {own[different]!r} and {other[different]!r}"
    raise ConfigError(
        f"{PARAM}: the draft model's tokenizer is another: it has {len(other)} tokens, the model's has {len(own)}{at}. "
        "Drafts must be tokens of the model",
        PARAM,
    )


def _tokenizer(config: EngineConfig, checkpoint: Checkpoint | None, folder: Path | None) -> Tokenizer | None:
    own, named = own_tokenizer(checkpoint, folder), named_folder(config)
    if named is None:
        return own
    tokenizer = tokenizer_from_folder(named)
    if own is not None:  # the model's end-of-sequence ids still end its texts
        tokenizer.eos_ids = tuple(dict.fromkeys((*tokenizer.eos_ids, *own.eos_ids)))
    return tokenizer


def choose_chat_template(config: EngineConfig, checkpoint: Checkpoint | None, folder: Path | None) -> ChatTemplate:
    """The chat template of the option, else the named tokenizer's, else the model's own, which may have no source."""
    template = ChatTemplate(None)
    if checkpoint is not None and checkpoint.spelling == "gguf":
        template = chat_template_from_gguf(checkpoint.metadata)
    elif folder is not None:
        template = chat_template_from_folder(folder)
    if (named := named_folder(config)) is not None:
        theirs = chat_template_from_folder(named)
        template = theirs if theirs.source is not None or template.source is None else template
    if config.chat_template is None:
        return template
    try:
        source = read_template(config.chat_template)
        template = template.with_source(source, named_template("the engine's", config.chat_template))
        template.check()
    except RequestError as error:
        raise ConfigError(str(error), param="chat_template") from None
    return template


def named_folder(config: EngineConfig) -> Path | None:
    """The folder of the tokenizer that the option names."""
    if config.tokenizer is None:
        return None
    path = Path(config.tokenizer).expanduser()
    folder = path.parent if path.name == "tokenizer.json" else path
    if not folder.is_dir():
        raise ConfigError(f"tokenizer={config.tokenizer!r}: no such folder or tokenizer.json", param="tokenizer")
    return folder


def eos_ids(
    model: ModelConfig, tokenizer: Tokenizer | None, generation_config: Mapping[str, Any] = NO_DEFAULTS
) -> tuple[int, ...]:
    """End-of-sequence ids of the tokenizer, of the sampling defaults and of the model's configuration."""
    named = token_ids(generation_config.get("eos_token_id")) if tokenizer is None else tokenizer.eos_ids
    return tuple(dict.fromkeys((*named, *model.eos_ids)))
