"""The web page in every state that axe-core looks at: with Markdown, versions, files, faults, and in each view."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.npm_packages import axe_script
from tests.support.processes.browser import PHONE, Tab
from tests.support.serving.web_page import ask_and_wait, press_button, script_answers

SIZES = {"wide": (1440, 900), "narrow": (1000, 760), "phone": PHONE}
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
RUN = """
axe.run(document).then((found) =>
  Object.fromEntries(Object.entries(found).filter(([, value]) => Array.isArray(value))))
"""


def page_states(tab: Tab, folder: Path) -> Iterator[str]:
    """Brings a new page into one state after the other; yields their names. folder: an empty one."""
    yield "empty"
    script_answers(tab, ANSWER, "two", {"status": 500, "message": "oops"})
    ask_and_wait(tab, "q1")
    press_button(tab, "Again")
    tab.wait("document.querySelector('.answer').innerText === 'two'")
    press_button(tab, "‹")
    tab.read("document.querySelector('.reasoning').open = true")
    (folder / "a.txt").write_text("x")
    tab.attach("#file", folder / "a.txt")
    tab.wait("!!document.querySelector('#files li')")
    yield "Markdown, versions, open reasoning, a file"
    ask_and_wait(tab, "q2")
    tab.click("#settings summary")
    tab.fill("[name=top_k]", "1.5")
    press_button(tab, "Edit", turn=0)
    tab.read("document.querySelector('.file').open = true")
    yield "a failed answer, an open editor, a fault in the settings"
    for view in ("conversations", "engine"):
        tab.read(f"location.hash = '#{view}'")
        yield f"the view of the {view}"


def run_axe(tab: Tab) -> dict[str, list[dict[str, Any]]]:
    """What axe-core finds, all rules included: `violations`, `incomplete`, `passes` and `inapplicable` rules."""
    if not tab.read("!!window.axe"):
        tab.read(f"{axe_script()}; 0")
    return tab.read(RUN)


def violations(tab: Tab) -> list[tuple[str, str]]:
    """Rules that are violated, with the elements that violate them."""
    return [(rule["id"], node["html"]) for rule in run_axe(tab)["violations"] for node in rule["nodes"]]
