"""docs/recipes.md is one program, block by block, and every block prints something."""

import re

import pytest

from tests.repository.modules import ROOT

pytestmark = pytest.mark.optimized

PAGE = ROOT / "docs" / "recipes.md"


def blocks(text):
    """The Python blocks of a page, each with the number of its first line."""
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)) + 1, match[1]) for match in found]


def test_blocks_are_found_with_their_lines():
    assert blocks("a\n```python\nx = 1\n```\n```bash\nls\n```\n```python\ny\nz\n```\n") == [
        (3, "x = 1\n"),
        (9, "y\nz\n"),
    ]


@pytest.mark.thorough
def test_the_recipes_run_from_top_to_bottom(real_model, capsys):
    real_model("smollm2-135m-instruct")
    namespace = {"__name__": "recipes"}
    found = blocks(PAGE.read_text(encoding="utf-8"))
    assert len(found) > 8
    for line, source in found:
        # Blank lines before the block make its traceback show the page's line numbers.
        exec(compile("\n" * (line - 1) + source, str(PAGE), "exec"), namespace)
        assert capsys.readouterr().out.strip(), f"the block at line {line} shows nothing"
