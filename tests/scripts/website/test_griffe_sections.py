"""The API pages show enumerations of docstrings as lists and examples as code."""

from pathlib import Path
from textwrap import dedent

import griffe

from scripts.website.griffe_sections import Sections, as_code, as_list

NAMES = {"n", "seed", "top_p", "top_k"}


def test_a_paragraph_of_names_becomes_a_list():
    assert as_list("n: samples. seed: None draws\none. top_p, top_k: cut.", NAMES) == (
        "- `n`: samples.\n- `seed`: None draws one.\n- `top_p`, `top_k`: cut."
    )


def test_errors_after_the_names_are_a_paragraph():
    assert as_list("n: samples. Raises ValueError: n is 0.", NAMES) == "- `n`: samples.\n\nRaises ValueError: n is 0."


def test_other_paragraphs_are_unchanged():
    for text in ("Samples: n of them. Others follow.", "See n: it counts.", "Plain text."):
        assert as_list(text, NAMES) == text


def test_doctest_lines_become_code():
    assert as_code("Text.\n\n>>> for x in y:\n...     f(x)\n\nMore.") == (
        "Text.\n\n```python\nfor x in y:\n    f(x)\n```\n\nMore."
    )


def test_options_are_listed_with_their_helps(tmp_path: Path):
    source = '''
        from dataclasses import dataclass
        LIMIT = 7
        @dataclass
        class Config:
            """Options."""
            a: int = option(1, "first")
            b: int | None = option(None, f"at most {LIMIT:g}", is_shown=False)
    '''
    (tmp_path / "package.py").write_text(dedent(source))
    found = griffe.load("package", search_paths=[tmp_path], extensions=griffe.load_extensions(Sections))
    config = found["Config"]
    assert config.docstring.value == "Options.\n\n- `a`: first\n- `b`: at most 7"
    assert [str(parameter.default) for parameter in config.parameters][1:] == ["1", "None"]
