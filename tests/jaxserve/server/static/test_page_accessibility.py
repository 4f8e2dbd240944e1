"""axe-core finds nothing to report, at three widths, in light and dark, in all states of the page."""

import pytest

from tests.support.npm_packages import axe_script
from tests.support.processes.browser import PHONE
from tests.support.serving.web_page import ask_and_wait, press_button, script_answers

FOUND = """
axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
  violations.flatMap(({ id, nodes }) => nodes.map(({ html, any }) => [id, html, any[0]?.message])))
"""
ANSWER = """<think>Let me *see*.</think>

### Result

A [link](https://example.com), `code` and $x^2$:

```python
# comment
@decorator
def f(x: int = 12) -> str:
    return "text" + None  # and a long line that has to scroll to the side, since it is wider than the column of text
```

1. one
2. two

| name | value |
| --- | --- |
| a | 1 |

> quoted

$$\\int_0^1 \\vec{x}\\,dx$$
"""
SIZES = {"wide": (1440, 900), "narrow": (1000, 760), "phone": PHONE}


@pytest.fixture(scope="module")
def axe():
    return axe_script()


def findings(tab, axe):
    if not tab.read("!!window.axe"):
        tab.read(f"{axe}; 0")
    return tab.read(FOUND)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_nothing(open_page, axe, size, dark, tmp_path):
    page = open_page(SIZES[size], dark=dark)
    script_answers(page, ANSWER, "two", {"status": 500, "message": "oops"})
    ask_and_wait(page, "q1")
    press_button(page, "Again")
    page.wait("document.querySelector('.answer').innerText === 'two'")
    press_button(page, "‹")
    page.read("document.querySelector('.reasoning').open = true")
    (tmp_path / "a.txt").write_text("x")
    page.attach("#file", tmp_path / "a.txt")
    page.wait("!!document.querySelector('#files li')")
    assert findings(page, axe) == []
    ask_and_wait(page, "q2")
    page.click("#settings summary")
    page.fill("[name=top_k]", "1.5")
    press_button(page, "Edit", turn=0)
    page.read("document.querySelector('.file').open = true")
    assert findings(page, axe) == []
    for view in ("conversations", "engine"):
        page.read(f"location.hash = '#{view}'")
        assert findings(page, axe) == []
    page.expect("responded with a status of 500")


def test_axe_notices_what_is_wrong(page, axe):
    page.read(
        "document.querySelector('#prompt').labels[0].remove(); document.querySelector('#prompt').placeholder = ''"
    )
    page.read("document.querySelector('#hello').style.color = 'lightgray'")
    assert {name for name, *_ in findings(page, axe)} >= {"label", "color-contrast"}
