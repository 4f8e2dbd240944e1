"""The worked examples of docs/adding work: each page's code blocks are applied to a copy of the packages and run."""

import re

import pytest

from tests.docs.worked_example import Block, apply, blocks_of, run_example
from tests.repository.modules import ROOT

FOLDER = ROOT / "docs" / "adding"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "index.md")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_pages_example_prints_what_the_page_says(page, tmp_path):
    expected, printed = run_example(page, tmp_path)
    assert printed == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_files_that_a_page_names_exist(page):
    """Those of its table of files, without those that its example creates."""
    text = page.read_text()
    made = {block.title for block in blocks_of(text)}
    named = set(re.findall(r"`((?:jaxserve|checkpoints|pallas_kernels|tests|scripts|docs)/[\w/.]+)`", text))
    assert named
    assert not [name for name in named - made if not (ROOT / name).exists()]


def test_every_page_is_in_the_index():
    index = (FOLDER / "index.md").read_text()
    assert [page.name for page in PAGES if f"({page.name})" not in index] == []


def test_a_diff_that_does_not_fit_is_noticed(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\ny = 2\n")
    apply(Block("diff", "a.py", " x = 1\n-y = 2\n+y = 3\n"), tmp_path)
    assert (tmp_path / "a.py").read_text() == "x = 1\ny = 3\n"
    with pytest.raises(AssertionError, match="0 times"):
        apply(Block("diff", "a.py", "-y = 2\n+y = 3\n"), tmp_path)
