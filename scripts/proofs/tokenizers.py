"""Token ids, texts and rendered chats of five tokenizers equal those of transformers; streamed text equals whole text.

Texts: the corpus of scripts/goldens/texts.py, the files of this repository in pieces, and seeded random mixtures of
characters and of pieces of the corpus. Chats: scripts/goldens/chats.py; "refused" are those for which both transformers
and jaxserve raise. Random ids are streamed one by one, by jaxserve and by DecodeStream of the tokenizers package; the
table counts how often the latter raises. The oracle, transformers, runs in a separate Python environment with
requirements/oracle.txt; name its interpreter with --oracle-python or in ORACLE_PYTHON.
"""

import argparse
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from jaxserve.core.errors import RequestError
from jaxserve.text.detokenize import Detokenizer
from jaxserve.text.tokenizer import Tokenizer
from scripts.goldens.chats import CHATS, options_of
from scripts.goldens.texts import TEXTS, random_texts
from scripts.goldens.tokenizer_goldens import ask
from tests.support.golden_tokenizers import ALL, rendered, tokenizer_of

ROOT = Path(__file__).parents[2]
PIECE_CHARS = 1500
NUM_ID_ROWS, ID_ROW_LEN = 1000, 24
ENDINGS = (".py", ".md", ".toml", ".txt", ".sh")


@dataclass(slots=True)
class Row:
    """The result for one tokenizer: counts, and descriptions of all differences."""

    name: str
    num_texts: int
    num_tokens: int
    num_chats: int
    num_refused: int
    num_decode_stream_raised: int
    versions: str
    faults: list[str]

    def cells(self) -> str:
        chats = (
            f"{self.num_chats} of {self.num_chats} ({self.num_refused} refused)" if self.num_chats else "no template"
        )
        texts, rows = f"{self.num_texts:,} of {self.num_texts:,}", f"{NUM_ID_ROWS:,} of {NUM_ID_ROWS:,}"
        cells = [self.name, f"{self.num_texts:,}", f"{self.num_tokens:,}", texts, texts, texts, rows]
        return f"| {' | '.join([*cells, f'{self.num_decode_stream_raised:,} of {NUM_ID_ROWS:,}', chats])} |"


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove tokenizers", description=__doc__)
    parser.add_argument("--oracle-python", default=os.environ.get("ORACLE_PYTHON"), help="default: $ORACLE_PYTHON")
    parser.add_argument("--num-random", type=int, default=6000, help="random texts per tokenizer (default: 6000)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if args.oracle_python is None:
        raise SystemExit("set --oracle-python or ORACLE_PYTHON to a Python with requirements/oracle.txt installed")
    texts = [*TEXTS, *repository_texts(), *random_texts(args.seed, args.num_random)]
    rows = []
    for name in ALL:
        rows.append(compare(args.oracle_python, name, texts))
        print(f"{name}: {len(rows[-1].faults)} differences", *rows[-1].faults[:5], sep="\n  ", file=sys.stderr)
    if any(row.faults for row in rows):
        raise SystemExit("failed: there are differences")
    return _table(rows)


def repository_texts() -> list[str]:
    """The text files tracked by git, in pieces of `PIECE_CHARS` characters."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    files = [ROOT / name for name in listing.splitlines() if name.endswith(ENDINGS)]
    whole = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
    return [text[i : i + PIECE_CHARS] for text in whole for i in range(0, len(text), PIECE_CHARS)]


def compare(oracle_python: str, name: str, texts: list[str]) -> Row:
    tokenizer, detokenizer = tokenizer_of(name), Detokenizer(tokenizer_of(name))
    encoded = tokenizer.encode_batch(texts)
    answer = ask(oracle_python, name, texts, encoded)
    faults = []
    for text, ids, their_ids, their_text in zip(texts, encoded, answer["encoded"], answer["decoded"], strict=True):
        if ids != their_ids:
            faults.append(f"ids of {text!r}: {ids} but {their_ids}")
        if (decoded := tokenizer.decode(ids)) != their_text:
            faults.append(f"text of {ids}: {decoded!r} but {their_text!r}")
        if (streamed := stream(detokenizer, ids)) != decoded:
            faults.append(f"stream of {ids}: {streamed!r} but {decoded!r}")
    random_ids = list(rows_of_ids(tokenizer))
    faults += [f"stream of {ids}" for ids in random_ids if stream(detokenizer, ids) != tokenizer.decode(ids)]
    chats = CHATS if answer["rendered"] else []
    for chat, theirs in zip(chats, answer["rendered"], strict=True):
        if (ours := render(name, chat)) != theirs:
            faults.append(f"conversation {chat['name']!r}: {ours!r} but {theirs!r}")
    return Row(
        name=name,
        num_texts=len(texts),
        num_tokens=sum(map(len, encoded)),
        num_chats=len(chats),
        num_refused=answer["rendered"].count(None),
        num_decode_stream_raised=sum(decode_stream_raises(tokenizer, ids) for ids in random_ids),
        versions=answer["versions"],
        faults=faults,
    )


def render(name: str, chat: dict) -> str | None:
    try:
        return rendered(name, chat["messages"], options_of(chat))
    except RequestError:
        return None


def stream(detokenizer: Detokenizer, ids: list[int]) -> str:
    """The text of ids that are streamed one by one."""
    text_stream = detokenizer.stream()
    return "".join(text_stream.push((token_id,)) for token_id in ids) + text_stream.finish()


def rows_of_ids(tokenizer: Tokenizer):
    """Random rows of ids: half from the whole vocabulary, half single bytes, many of which form no character."""
    rng = random.Random(1)
    single_bytes = [i for i, data in enumerate(tokenizer.token_bytes) if len(data) == 1]
    for _ in range(NUM_ID_ROWS):
        pairs = [(rng.randrange(tokenizer.vocab_size), rng.choice(single_bytes)) for _ in range(ID_ROW_LEN // 2)]
        yield [token_id for pair in pairs for token_id in rng.sample(pair, 2)]


def decode_stream_raises(tokenizer: Tokenizer, ids: list[int]) -> bool:
    from tokenizers.decoders import DecodeStream

    other = DecodeStream(skip_special_tokens=True)
    try:
        for token_id in ids:
            other.step(tokenizer.backend, token_id)
    except Exception:  # tokenizers raises bare Exceptions
        return True
    return False


def _table(rows: list[Row]) -> str:
    heads = ["tokenizer", "texts", "tokens", "ids equal", "decode equal", "streamed = decoded", "random ids streamed"]
    heads += ["DecodeStream raises", "templates equal"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *(row.cells() for row in rows)]
    notes = [
        f"The oracle: {rows[0].versions}. There are no differences.",
        "The ids of gemma-3-270m, whose tokenizer is read from its GGUF file, are compared with those of the published",
        "tokenizer, because transformers restores it from the file with another order of merges. Null content,",
        "arguments as JSON text, and text parts are compared with their plain form where a template lacks support.",
        "Refused: transformers and jaxserve both raise.",
    ]
    return "\n".join([*lines, "", *notes])
