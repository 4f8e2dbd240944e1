"""Host: `find_tokenizer`: the tokenizer of a model under any of its names, without its weights where possible."""

from pathlib import Path

from checkpoints.fetch.hf_hub import fetch_small_files
from checkpoints.formats.gguf import GgufFile
from checkpoints.sources import hub_repo, resolve
from jaxserve.core.errors import ConfigError
from jaxserve.text.tokenizer import Tokenizer
from jaxserve.text.tokenizer_from_folder import tokenizer_from_folder
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf


def find_tokenizer(source: str) -> Tokenizer:
    """The tokenizer of `source`, a folder with a tokenizer.json or any source of a model.

    For a Hugging Face id only the small files are fetched; for a GGUF file only the header is read. Raises
    `SourceError` or `ConfigError`.
    """
    path = Path(source).expanduser()
    folder = path.parent if path.name == "tokenizer.json" else path
    if (folder / "tokenizer.json").is_file():
        return tokenizer_from_folder(folder)
    if (repo := hub_repo(source)) is not None:
        return tokenizer_from_folder(fetch_small_files(repo))
    found = resolve(source)
    if found.format != "gguf":
        raise ConfigError(f"{found.folder} holds no tokenizer.json", param="tokenizer")
    file = GgufFile(found.weights)
    try:
        return tokenizer_from_gguf(file.metadata)
    finally:
        file.close()
