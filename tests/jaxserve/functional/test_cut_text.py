"""Files are cut into the pieces of their whole text, of which no more than needed is read."""

import string

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models

from jaxserve.core.errors import RequestError
from jaxserve.functional.cut_text import cut_file, cut_text
from jaxserve.text.tokenizer import Tokenizer

LETTERS = Tokenizer(Backend(models.BPE({letter: i for i, letter in enumerate(string.ascii_lowercase)}, [])))
"""One token a letter; other characters have none."""
TEXT = "".join(np.random.default_rng(0).choice(list(string.ascii_lowercase), 200))


@pytest.mark.parametrize("between", ["", "." * 50])
@pytest.mark.parametrize("most", [1, 3, 12, 13, None])
def test_pieces_are_those_of_the_whole_text(most, between, tmp_path):
    """Also where a token has many more characters than most have."""
    (tmp_path / "text").write_text(between.join(TEXT))
    found = cut_file(tmp_path / "text", "--text", LETTERS, 16, most)
    np.testing.assert_array_equal(found, cut_text(LETTERS.encode(TEXT), 16)[:most])


def test_no_more_is_read_than_needed(tmp_path):
    (tmp_path / "text").write_bytes(TEXT.encode() * 1000 + b"\xff")
    assert cut_file(tmp_path / "text", "--text", LETTERS, 16, 2).shape == (2, 16)
    with pytest.raises(RequestError, match=r"--text .*text is not UTF-8 text .*0xff"):
        cut_file(tmp_path / "text", "--text", LETTERS, 16, None)


def test_a_short_file_is_named(tmp_path):
    (tmp_path / "text").write_text("abc")
    with pytest.raises(RequestError, match=r"--text .*text has 3 tokens, fewer than a piece of 16"):
        cut_file(tmp_path / "text", "--text", LETTERS, 16, 2)
