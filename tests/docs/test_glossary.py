"""The glossary is true: each word stands in the module that the table names, and no word stands there twice."""

import re
from collections import Counter

from tests.repository.modules import ROOT

PAGE = ROOT / "docs" / "glossary.md"
ROW = re.compile(r"^\| (?!word |---)([^|]+) \| [^|]+ \| `([^`|]+)` \|$", re.MULTILINE)


def words_of(text: str) -> str:
    """Lower-case words: `KVGroups`, `kv_groups` and "KV groups" all become "kv groups"."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", text)
    return re.sub(r"[\W_]+", " ", text).lower()


def rows() -> list[tuple[str, str]]:
    """(word, module) of the table; one row may have several words."""
    return [(word, path) for words, path in ROW.findall(PAGE.read_text()) for word in words.split(", ")]


def test_every_row_is_read():
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "`" in line]
    assert len(ROW.findall(PAGE.read_text())) == len(lines) > 80


def test_every_word_stands_in_its_module():
    missing = sorted({path for _, path in rows() if not (ROOT / path).is_file()})
    assert not missing
    texts = {path: words_of(path + (ROOT / path).read_text()) for _, path in rows()}
    assert not [(word, path) for word, path in rows() if words_of(word).strip() not in texts[path]]


def test_no_word_is_explained_twice():
    assert not [word for word, count in Counter(word for word, _ in rows()).items() if count > 1]


def test_words_are_compared_whatever_their_spelling():
    assert words_of("KVGroups kv_groups KV groups") == "kv groups kv groups kv groups"
