"""Host: encodes, decodes and renders with transformers: reads one JSON object, writes one.

    python scripts/goldens/tokenizer_oracle.py <question.json >answer.json    (needs requirements/oracle.txt)

question: {"model": NAME, "path": a .gguf file or a folder, "published": a folder or null, "texts": [...],
"ids": [[...]], "chats": [[messages, options]]}
answer: {"encoded": ids per text, "decoded": text per row of ids, "rendered": text per chat, null where transformers
raises, "versions": versions of the packages}

The reference is the published tokenizer.json of a model, from which transformers' GGUF reader deviates in two cases.
It does not support the pre-tokenizer of SmolLM2's file (`smollm`) and splits like GPT-2, which differs for spaces
before digits; here the published rule, single digits, replaces it, and llama.cpp gives the same ids. It also orders the
merges of SentencePiece's runs of spaces differently (32 spaces become 16 + 16, the published tokenizer gives 31 + 1):
where `published` is given, texts are encoded with that tokenizer.
"""

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any


def load(model: str, path: Path) -> Any:
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    if path.is_dir():
        return AutoTokenizer.from_pretrained(path)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    if model.startswith("smollm2"):
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    return tokenizer


def rendered(tokenizer: Any, messages: list[dict[str, Any]], options: dict[str, Any]) -> str | None:
    try:
        return tokenizer.apply_chat_template(messages, tokenize=False, **options)
    except Exception:  # a template is a program, which may raise any exception
        return None


def answer(question: dict[str, Any]) -> dict[str, Any]:
    tokenizer = load(question["model"], Path(question["path"]))
    published = question["published"]
    encoder = tokenizer if published is None else load(question["model"], Path(published))
    return {
        "versions": ", ".join(f"{name} {metadata.version(name)}" for name in ("transformers", "tokenizers")),
        "encoded": [encoder(text).input_ids for text in question["texts"]],
        "decoded": [tokenizer.decode(ids, skip_special_tokens=True) for ids in question["ids"]],
        "rendered": [rendered(tokenizer, *chat) for chat in question["chats"]],
    }


if __name__ == "__main__":
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
