"""What the pages name exists: files, folders, classes of the design, and the targets of links outside the website."""

import re
from pathlib import Path

import pytest

import jaxserve
from jaxserve import LLM, AsyncLLM
from jaxserve.core import errors
from scripts.prove import descriptions, report_of
from tests.repository.modules import PACKAGES, ROOT, modules

NAMED = re.compile(r"`((?:jaxserve|checkpoints|pallas_kernels|tests|scripts|docs|requirements)/[\w./-]*\w)`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)[^)]*\)")
DESIGN = [ROOT / "docs" / "design.md", *(ROOT / "docs" / "design").glob("*.md")]
FOLDERS = [ROOT, ROOT / "docs", ROOT / "docs" / "adding", ROOT / "docs" / "design"]
PAGES = sorted(page for folder in FOLDERS for page in folder.glob("*.md"))
PROOF = re.compile(r"^\| (?:\[(\w+)\]\((proofs/\S+)\)|`(\w+)`) \| (.+) \|$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "adding"], ids=name_of)
def test_files_that_a_page_names_exist(page):
    named = [path for path in NAMED.findall(page.read_text()) if "NAME" not in path]
    assert not [path for path in named if not (ROOT / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_a_page_lead_to_files(page):
    assert not [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]


def test_classes_that_the_design_names_exist():
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z]\w+)+)`", "".join(page.read_text() for page in DESIGN)))
    source = "\n".join(module.path.read_text() for module in modules())
    defined = set(re.findall(r"^\s*class (\w+)", source, re.MULTILINE))
    assert {"OutputProcessor", "StepPlan"} <= named
    assert not named - defined


def test_calls_that_the_python_page_names_exist():
    text = (ROOT / "docs" / "python.md").read_text()
    calls = set(re.findall(r"\bllm\.(\w+)", text))
    own = set(
        re.findall(r"`(\w+)(?:\(\))?`", next(line for line in text.splitlines() if line.startswith("| `AsyncLLM`")))
    )
    assert {"generate", "stats"} <= calls
    assert {"submit", "health", "meters"} <= own
    assert [name for name in calls if not hasattr(LLM, name)] == []
    assert [name for name in own - {"AsyncLLM"} if not hasattr(AsyncLLM, name)] == []


def test_the_names_that_the_api_pages_promise_are_imported_from_the_package():
    """All errors that calls raise are among them; their base class only groups them."""
    raised = {name for name, kind in vars(errors).items() if isinstance(kind, type) and not name.startswith("_")}
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    promised = set(re.findall(r"\bjaxserve\.([A-Z]\w+)", pages)) | raised - {"Any", "JaxserveError"}
    assert {"LLM", "EngineConfig", "LateError"} <= promised == set(jaxserve.__all__)
    for name in promised:
        assert getattr(jaxserve, name).__name__ == name


def test_the_table_of_proofs_has_the_claim_of_each_script():
    """A proof's claim is the first line of its docstring; its page is linked where it has been written."""
    docs = ROOT / "docs"
    text = (docs / "testing.md").read_text()
    listed = {linked or unlinked: (page, claim) for linked, page, unlinked, claim in PROOF.findall(text)}
    pages = {name: report_of(name) for name in descriptions()}
    expected = {
        name: (str(pages[name].relative_to(docs)) if pages[name].exists() else "", claim)
        for name, claim in descriptions().items()
    }
    assert {"aot", "fuzz"} <= set(expected)
    assert listed == expected


def test_a_dead_link_and_a_missing_file_are_noticed():
    assert LINK.findall("[a](b.md) [c](d.md#e) [f](https://g) [h](#i)") == ["b.md", "d.md"]
    assert NAMED.findall("`jaxserve/no_such.py`, `scripts/test`, `PACKAGES`") == ["jaxserve/no_such.py", "scripts/test"]
    assert PACKAGES
