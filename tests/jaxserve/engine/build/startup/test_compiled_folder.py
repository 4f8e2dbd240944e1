"""A folder of compiled programs is used only where it fits and is complete; otherwise the error says what to do."""

import json
import re

import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.engine.build.startup.compiled_folder import CompiledFolder, clear, read_compiled

NAME = "decode[tokens=8, rows=8, page_columns=4]"
KEY = {"jax": "0.11.2", "num_pages": 300, "buckets": ["a", "b"]}
DIGEST = "0a1b"


@pytest.fixture
def folder(tmp_path):
    clear(tmp_path)
    compiled = CompiledFolder(tmp_path, KEY, {"num_pages": 300})
    compiled.put(NAME, DIGEST, b"a program")
    compiled.save()
    return tmp_path


def program_file(folder):
    (path,) = (folder / "programs").rglob("*.export")
    return path


def test_what_is_written_is_read(folder):
    compiled = read_compiled(folder)
    assert compiled.get(NAME, DIGEST) == b"a program"
    assert (compiled.key, compiled.sizes) == (KEY, {"num_pages": 300})
    compiled.check(KEY)


def test_what_differs_is_named(folder):
    with pytest.raises(ConfigError, match=r"num_pages is 300 there and 200 here; cores is None there.*again") as caught:
        read_compiled(folder).check(KEY | {"num_pages": 200, "cores": 8})
    assert caught.value.param == "compiled"
    assert "jax is" not in str(caught.value)
    with pytest.raises(ConfigError, match="and 12 more"):
        read_compiled(folder).check({f"input{i}": i for i in range(20)})


@pytest.mark.parametrize(
    "change", [lambda d: d[:-1] + b"n", lambda d: d[:-1], lambda d: d + b" and more", lambda d: b""]
)
def test_a_program_that_changed_is_refused(folder, change):
    path = program_file(folder)
    path.write_bytes(change(path.read_bytes()))
    assert read_compiled(folder).store.get(NAME, DIGEST) is None
    with pytest.raises(ConfigError, match=r"decode-tokens-8-rows-8-page_columns-4.export is not what .* wrote"):
        read_compiled(folder).get(NAME, DIGEST)


def test_a_program_of_another_run_is_refused(folder):
    read_compiled(folder).store.put(NAME, DIGEST, b"another")
    with pytest.raises(ConfigError, match=r"columns-4.export is not what .* wrote"):
        read_compiled(folder).get(NAME, DIGEST)


def test_a_program_that_is_missing_is_refused(folder):
    compiled = read_compiled(folder)
    with pytest.raises(ConfigError, match="has no program fork"):
        compiled.get("fork", DIGEST)
    program_file(folder).unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        compiled.get(NAME, DIGEST)


def test_names_do_not_lead_out_of_the_folder(folder):
    """The manifest gives the names of programs, but not of their files."""
    content = json.loads((folder / "manifest.json").read_text())
    content["programs"]["../../secret"] = [9, "0" * 64]
    (folder / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=re.escape(f"{folder}/programs/{DIGEST}/secret.export cannot be read")):
        read_compiled(folder).get("../../secret", DIGEST)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format": 2}',
        '{"format": 2, "key": 3, "sizes": {}, "programs": {}}',
        '{"format": 2, "key": {}, "sizes": {}, "programs": {"a": 1}}',
        '{"format": 2, "key": {}, "sizes": {}, "programs": {"a": ["many", ""]}}',
        "\udc80",
        "[" * 100_000,
        " " * (2**24 + 1),
    ],
)
def test_a_damaged_manifest_is_refused(folder, text):
    (folder / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=r"manifest.json is not what `jaxserve compile` wrote"):
        read_compiled(folder)


def test_another_format_and_no_manifest_are_told_apart(folder):
    (folder / "manifest.json").write_text('{"format": 1}')
    with pytest.raises(ConfigError, match="has format 1, not 2"):
        read_compiled(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(ConfigError, match="does not exist"):
        read_compiled(folder)


def test_a_folder_is_written_anew_but_nothing_else_is_deleted(folder):
    (folder / "cache" / "old").touch()
    clear(folder)
    assert sorted(path.name for path in folder.rglob("*")) == ["cache", "programs"]
    (folder / "thesis.txt").touch()
    with pytest.raises(ConfigError, match=r"thesis.txt, which `jaxserve compile` did not write"):
        clear(folder)
    assert (folder / "thesis.txt").exists()
