"""Wiring: which tokenizer a model gets, and which tokens end its texts."""

from pathlib import Path

from checkpoints.open import Checkpoint
from jaxserve.core.config import EngineConfig
from jaxserve.core.errors import ConfigError
from jaxserve.models.config import ModelConfig
from jaxserve.text.from_folder import tokenizer_from_folder
from jaxserve.text.from_gguf import tokenizer_from_gguf
from jaxserve.text.tokenizer import Tokenizer


def choose_tokenizer(config: EngineConfig, checkpoint: Checkpoint | None, folder: Path | None) -> Tokenizer | None:
    """The one that the option names, or the model's own; None when there is neither."""
    own = _own(checkpoint, folder)
    if config.tokenizer is None:
        return own
    path = Path(config.tokenizer).expanduser()
    named = path.parent if path.name == "tokenizer.json" else path
    if not named.is_dir():
        raise ConfigError(f"tokenizer={config.tokenizer!r}: no such folder or tokenizer.json", param="tokenizer")
    tokenizer = tokenizer_from_folder(named)
    if own is not None:  # the model's end-of-sequence ids still end its texts
        tokenizer.eos_ids = tuple(dict.fromkeys((*tokenizer.eos_ids, *own.eos_ids)))
    return tokenizer


def _own(checkpoint: Checkpoint | None, folder: Path | None) -> Tokenizer | None:
    if checkpoint is not None and checkpoint.spelling == "gguf":
        return tokenizer_from_gguf(checkpoint.metadata)
    if folder is None or not (folder / "tokenizer.json").is_file():
        return None
    return tokenizer_from_folder(folder)


def eos_ids(model: ModelConfig, tokenizer: Tokenizer | None) -> tuple[int, ...]:
    """End-of-sequence ids of the tokenizer and of the model's configuration."""
    return tuple(dict.fromkeys((*(() if tokenizer is None else tokenizer.eos_ids), *model.eos_ids)))
