"""A folder of compiled programs is used only where it fits and is whole; else the error says what to do."""

import json
import re

import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.engine.build.startup.program_store import ProgramManifest, clear, read_manifest

NAME = "decode[tokens=8, rows=8, page_columns=4]"
PINS = {"jax": "0.11.2", "num_pages": 300, "buckets": ["a", "b"]}


@pytest.fixture
def folder(tmp_path):
    clear(tmp_path)
    manifest = ProgramManifest(tmp_path, PINS, {"num_pages": 300})
    manifest.add(NAME, b"a program")
    manifest.save()
    return tmp_path


def test_what_is_written_is_read(folder):
    manifest = read_manifest(folder)
    assert manifest.artefact(NAME) == b"a program"
    assert (manifest.pins, manifest.sizes) == (PINS, {"num_pages": 300})
    manifest.check(PINS)


def test_what_differs_is_named(folder):
    with pytest.raises(ConfigError, match=r"num_pages is 300 there and 200 here; cores is None there.*again") as caught:
        read_manifest(folder).check(PINS | {"num_pages": 200, "cores": 8})
    assert caught.value.param == "compiled"
    assert "jax is" not in str(caught.value)
    with pytest.raises(ConfigError, match="and 12 more"):
        read_manifest(folder).check({f"pin{i}": i for i in range(20)})


@pytest.mark.parametrize("data", [b"a progran", b"a progra", b"a program and more", b""])
def test_an_artefact_that_changed_is_refused(folder, data):
    next((folder / "programs").iterdir()).write_bytes(data)
    with pytest.raises(ConfigError, match=r"decode-tokens-8-rows-8-page_columns-4.export is not what .* wrote"):
        read_manifest(folder).artefact(NAME)


def test_an_artefact_that_is_missing_is_refused(folder):
    manifest = read_manifest(folder)
    with pytest.raises(ConfigError, match="has no program fork"):
        manifest.artefact("fork")
    next((folder / "programs").iterdir()).unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        manifest.artefact(NAME)


def test_names_do_not_lead_out_of_the_folder(folder):
    """A name is the manifest's to choose, the file is not."""
    content = json.loads((folder / "manifest.json").read_text())
    content["programs"]["../../secret"] = [9, "0" * 64]
    (folder / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=re.escape(f"{folder}/programs/secret.export cannot be read")):
        read_manifest(folder).artefact("../../secret")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format": 1}',
        '{"format": 1, "pins": 3, "sizes": {}, "programs": {}}',
        '{"format": 1, "pins": {}, "sizes": {}, "programs": {"a": 1}}',
        '{"format": 1, "pins": {}, "sizes": {}, "programs": {"a": ["many", ""]}}',
        "\udc80",
        "[" * 100_000,
        " " * (2**24 + 1),
    ],
)
def test_a_damaged_manifest_is_refused(folder, text):
    (folder / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=r"manifest.json is not what `jaxserve compile` wrote"):
        read_manifest(folder)


def test_another_format_and_no_manifest_are_told_apart(folder):
    (folder / "manifest.json").write_text('{"format": 2}')
    with pytest.raises(ConfigError, match="has format 2, not 1"):
        read_manifest(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(ConfigError, match="does not exist"):
        read_manifest(folder)


def test_a_folder_is_written_anew_but_nothing_else_is_deleted(folder):
    (folder / "cache" / "old").touch()
    clear(folder)
    assert sorted(path.name for path in folder.rglob("*")) == ["cache", "programs"]
    (folder / "thesis.txt").touch()
    with pytest.raises(ConfigError, match=r"thesis.txt, which `jaxserve compile` did not write"):
        clear(folder)
    assert (folder / "thesis.txt").exists()
