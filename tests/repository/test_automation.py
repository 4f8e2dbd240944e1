"""What runs elsewhere, in hosted CI, before commits and as a website, runs files that are here."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.repository.modules import ROOT

WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
HOOKS = ROOT / ".pre-commit-config.yaml"
SITE = ROOT / ".mkdocs.yml"


class SiteLoader(yaml.SafeLoader):
    """Reads the tags by which MkDocs names functions as their names."""


SiteLoader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda loader, suffix, node: suffix)


def is_program(path: str) -> bool:
    return os.access(ROOT / path, os.X_OK)


def pages_of(nav: Any) -> set[str]:
    """The files that a navigation names, in lists and mappings of any depth."""
    if isinstance(nav, str):
        return {nav}
    return set().union(*map(pages_of, nav.values() if isinstance(nav, dict) else nav))


def test_hosted_ci_runs_what_a_change_must_pass_without_secrets():
    text = WORKFLOW.read_text()
    job = yaml.safe_load(text)["jobs"]["test"]
    assert [step["run"] for step in job["steps"] if "run" in step][-1] == ".ci/run"
    assert is_program(".ci/run")
    assert "secrets" not in text
    assert job["container"].startswith(f"python:{(ROOT / '.python-version').read_text().strip()}-")


def test_the_commit_hook_runs_the_checks():
    (hook,) = yaml.safe_load(HOOKS.read_text())["repos"][0]["hooks"]
    assert (hook["entry"], hook["language"]) == ("scripts/check", "system")
    assert is_program(hook["entry"])


@pytest.mark.parametrize("script", ["scripts/check", "scripts/docs"])
def test_the_website_is_built_strictly(script):
    """`--quiet` would hide warnings from `--strict`."""
    (command,) = re.findall(r"mkdocs build .*", (ROOT / script).read_text())
    assert "--strict" in command
    assert "--quiet" not in command


def test_the_website_shows_every_page():
    """But for measured pages and proofs, to which others link."""
    site = yaml.load(SITE.read_text(), SiteLoader)
    docs = ROOT / site["docs_dir"]
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")}
    shown = pages_of(site["nav"])
    assert shown <= pages
    assert {Path(page).parts[0] for page in pages - shown} <= {"benchmarks", "proofs"}
