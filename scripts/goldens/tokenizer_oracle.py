"""Host: what transformers makes of texts, ids and conversations: one JSON object in, one out.

    python scripts/goldens/tokenizer_oracle.py <question.json >answer.json    (needs requirements/oracle.txt)

question: {"model": NAME, "path": a .gguf file or a folder, "published": a folder or null, "texts": [...],
"ids": [[...]], "chats": [[messages, options]]}
answer: {"encoded": ids a text, "decoded": text a row of ids, "rendered": text a chat, null where transformers raises,
"versions": what answered}

The truth is the tokenizer.json that a model was published with, and transformers' reading of a GGUF file is not always
that. It does not know the pre-tokenizer that SmolLM2's file names (`smollm`) and cuts as GPT-2 does, which differs
where spaces stand before a digit: the published rule, digits one by one, is put in its place; llama.cpp gives the same
ids. And it puts the merges of SentencePiece's runs of spaces in another order (32 spaces become 16 + 16, published are
31 + 1): where `published` is given, texts are encoded with that.
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
    except Exception:  # a template is a program: it may raise anything
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
