"""The five tokenizers that are compared with transformers, and the goldens of that comparison."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from checkpoints.formats.gguf import GgufFile
from checkpoints.sources import resolve
from jaxserve.engine.inputs.chat_renderer import OWN_VARIABLES
from jaxserve.text.chat_template import ChatTemplate, chat_template_from_folder, chat_template_from_gguf
from jaxserve.text.tokenizer import Tokenizer
from jaxserve.text.tokenizer_from_folder import tokenizer_from_folder
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf
from tests.support.npm_packages import tokenizer_folder

GOLDENS = Path(__file__).parents[1] / "goldens" / "tokenizers.json"
IN_GGUF = ("smollm2-135m-instruct", "gemma-3-270m")
IN_FOLDERS = ("qwen3", "llama3_1", "gemma3")
ALL = (*IN_GGUF, *IN_FOLDERS)


@cache
def path_of(name: str) -> Path:
    """A .gguf file or a folder with tokenizer.json; the first use on a machine downloads it."""
    return resolve(name).weights if name in IN_GGUF else tokenizer_folder(name)


@cache
def metadata_of(name: str) -> dict[str, Any]:
    file = GgufFile(path_of(name))
    try:
        return file.metadata
    finally:
        file.close()


@cache
def tokenizer_of(name: str) -> Tokenizer:
    return tokenizer_from_gguf(metadata_of(name)) if name in IN_GGUF else tokenizer_from_folder(path_of(name))


@cache
def template_of(name: str) -> ChatTemplate:
    return chat_template_from_gguf(metadata_of(name)) if name in IN_GGUF else chat_template_from_folder(path_of(name))


def rendered(name: str, messages: Any, options: Mapping[str, Any]) -> str:
    """Renders a chat. options: those of transformers, including the template's own variables."""
    variables = {key: value for key, value in options.items() if key not in OWN_VARIABLES}
    others = {key: value for key, value in options.items() if key in OWN_VARIABLES}
    return template_of(name).render(messages, variables=variables, **others)


@cache
def goldens() -> dict[str, Any]:
    return json.loads(GOLDENS.read_text())
