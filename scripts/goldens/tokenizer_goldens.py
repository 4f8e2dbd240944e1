"""Host: writes tests/goldens/tokenizers.json: transformers' results for all texts and chats, for five tokenizers.

    PYTHONPATH=. python scripts/goldens/tokenizer_goldens.py ORACLE_PYTHON

Run it in jaxserve's environment; ORACLE_PYTHON is a Python with requirements/oracle.txt. The models are downloaded. In
`decoded`, null stands for the text itself. Renderings are stored as [sha256, characters], because they contain the
text of the templates; null where transformers raises.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from scripts.goldens.chats import CHATS, options_of, seen_by
from scripts.goldens.texts import TEXTS
from tests.support.golden_tokenizers import ALL, GOLDENS, path_of, template_of

PUBLISHED = {"gemma-3-270m": "gemma3"}  # tokenizer in a GGUF file → the published tokenizer
ORACLE = Path(__file__).with_name("tokenizer_oracle.py")


def ask(oracle_python: str, name: str, texts: list[str], ids: list[list[int]]) -> dict[str, Any]:
    """The oracle's answer for one tokenizer, from a separate process."""
    chats = [(seen_by(name, chat), options_of(chat)) for chat in CHATS] if template_of(name).source else []
    published = str(path_of(PUBLISHED[name])) if name in PUBLISHED else None
    question = {"model": name, "path": str(path_of(name)), "published": published, "texts": texts, "ids": ids}
    question["chats"] = chats
    command = [oracle_python, str(ORACLE)]
    done = subprocess.run(command, input=json.dumps(question), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def fingerprint(text: str | None) -> list[str | int] | None:
    return None if text is None else [hashlib.sha256(text.encode()).hexdigest(), len(text)]


def golden(oracle_python: str, name: str) -> dict[str, Any]:
    ids = ask(oracle_python, name, TEXTS, [])["encoded"]
    found = ask(oracle_python, name, [], ids)
    return {
        "ids": ids,
        "decoded": [None if text == given else text for text, given in zip(found["decoded"], TEXTS, strict=True)],
        "rendered": [fingerprint(text) for text in found["rendered"]],
    }


def main(oracle_python: str) -> None:
    models = {name: golden(oracle_python, name) for name in ALL}
    chats = [{"name": c["name"], "messages": c["messages"], "options": options_of(c)} for c in CHATS]
    goldens = {"texts": TEXTS, "chats": chats, "models": models}
    GOLDENS.write_text(json.dumps(goldens, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(f"{GOLDENS}: {GOLDENS.stat().st_size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
