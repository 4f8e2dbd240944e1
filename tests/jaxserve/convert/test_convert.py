"""Conversion keeps the model: every format gives the same tree, and every run the same folder."""

import json
import shutil
import sys

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from checkpoints.errors import CheckpointError, SourceError
from checkpoints.formats.orbax_folder import OrbaxFile
from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.sources import resolve
from jaxserve.cli.convert import run
from jaxserve.core.hardware.mesh import make_mesh
from jaxserve.models.params import declare
from jaxserve.runner.load_weights import load_params, read_config
from jaxserve.runner.orbax_io import restore_params
from tests.checkpoints import safetensors_builder as build
from tests.support.golden_data import FAMILIES, checkpoint


def convert(source, folder, *options):
    assert run([str(source), str(folder), "--quiet", *options]) == 0
    return folder


def options_of(form):
    """Several weight files in either format."""
    return ("--format", form, *(("--max-shard-size", "100KB") if form == "safetensors" else ()))


def tree_of(source, num_devices=1, dtype="float32"):
    """(the configuration of the model, its weights on a mesh)."""
    with open_checkpoint(resolve(str(source))) as opened:
        model, mesh = read_config(opened), make_mesh(num_devices)
        if isinstance(opened.file, OrbaxFile):
            return model, restore_params(opened.file, model, mesh, declare(model, mesh, dtype))
        return model, load_params(opened, model, mesh, declare(model, mesh, dtype))


def assert_same_model(ours, theirs):
    assert ours[0] == theirs[0]
    assert jax.tree.structure(ours[1]) == jax.tree.structure(theirs[1])
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), ours[1], theirs[1])


def contents(folder):
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: data for name, data in files.items() if name != "convert.json"}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_tree_comes_out_of_every_form_and_of_forms_of_forms(family, tmp_path):
    source = checkpoint(family)
    expected = tree_of(source)
    shards = convert(source, tmp_path / "shards", "--max-shard-size", "20KB")
    parts = convert(shards, tmp_path / "parts", "--format", "orbax")
    again = convert(parts, tmp_path / "again")
    assert len(list(shards.glob("model-*-of-*.safetensors"))) > 3
    assert sorted(path.name for path in again.glob("*.safetensors")) == ["model.safetensors"]
    for folder in (shards, parts, again):
        assert_same_model(tree_of(folder), expected)


def test_a_converted_model_is_the_same_on_four_devices(tmp_path):
    source = checkpoint("llama3")  # two KV heads: each is repeated
    parts = convert(source, tmp_path / "parts", "--format", "orbax")
    assert_same_model(tree_of(parts, 4), tree_of(source, 4))


@pytest.mark.parametrize("family", FAMILIES)
def test_tensors_keep_names_shapes_and_values(family, tmp_path):
    folder = convert(checkpoint(family), tmp_path / "out")
    ours, theirs = (load_file(path / "model.safetensors") for path in (folder, checkpoint(family)))
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        if "gemma" in family and "norm" in name:  # 1 + w is rounded to float32 on the way
            np.testing.assert_allclose(ours[name], tensor, rtol=0, atol=1.3e-7)
        else:
            np.testing.assert_array_equal(ours[name], tensor, err_msg=name)


def test_weights_may_be_rounded_to_bfloat16(tmp_path):
    source = checkpoint("llama3")
    folder = convert(source, tmp_path / "out", "--dtype", "bfloat16")
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    (_, ours), (_, theirs) = tree_of(folder, dtype="bfloat16"), tree_of(source, dtype="bfloat16")
    np.testing.assert_array_equal(ours["embed"], theirs["embed"])
    assert (folder / "model.safetensors").stat().st_size < 0.6 * (source / "model.safetensors").stat().st_size


def test_a_finished_conversion_is_not_done_again(tmp_path, capsys):
    folder = convert(checkpoint("llama3"), tmp_path / "out", "--max-shard-size", "100KB")
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert run([str(checkpoint("llama3")), str(folder), "--max-shard-size", "100KB"]) == 0
    assert "was already complete" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_an_array_that_the_model_lacks_is_refused_before_it_is_read(tmp_path):
    """A size that no memory has."""
    parts = convert(checkpoint("llama2"), tmp_path / "parts", "--format", "orbax")
    index = parts / "orbax" / "index.json"
    table = json.loads(index.read_text())
    table["parts"]["outside"]["junk"] = {"shape": [2**47, 8], "dtype": "float32"}
    index.write_text(json.dumps(table))
    with pytest.raises(CheckpointError, match="the model has no outside/junk"):
        convert(parts, tmp_path / "again")


@pytest.mark.parametrize("form", ["safetensors", "orbax"])
def test_what_was_damaged_since_is_written_again(form, tmp_path):
    options = options_of(form)
    folder = convert(checkpoint("llama3"), tmp_path / "out", *options)
    expected = tree_of(folder)
    victim = folder / "orbax/layer-00001" if form == "orbax" else folder / "model-00002-of-00005.safetensors"
    kept = folder / "orbax/layer-00000" if form == "orbax" else folder / "model-00001-of-00005.safetensors"
    inode = kept.stat().st_ino
    if form == "orbax":
        shutil.rmtree(victim)
    else:
        victim.write_bytes(victim.read_bytes()[:-1])
        with pytest.raises(CheckpointError, match="incomplete download"):
            tree_of(folder)
    convert(checkpoint("llama3"), folder, *options)
    assert_same_model(tree_of(folder), expected)
    assert kept.stat().st_ino == inode


def test_a_folder_begun_by_another_conversion_is_refused(tmp_path):
    folder = convert(checkpoint("llama3"), tmp_path / "out")
    for source, options, changed in (
        (checkpoint("llama2"), (), "different source"),
        (checkpoint("llama3"), ("--dtype", "bfloat16"), "different dtype"),
        (checkpoint("llama3"), ("--format", "orbax"), "different format, max_shard_bytes"),
    ):
        with pytest.raises(CheckpointError, match=rf"a different conversion \({changed}\); name another folder"):
            convert(source, folder, *options)
    convert(checkpoint("llama2"), folder, "--overwrite", "--format", "orbax")
    assert not list(folder.glob("*.safetensors"))
    assert_same_model(tree_of(folder), tree_of(checkpoint("llama2")))


@pytest.mark.parametrize("manifest", ['{"job": {"sou', "[]", '{"job": {}, "done": {"a": "b"}, "is_finished": true}'])
def test_a_damaged_manifest_is_refused(manifest, tmp_path):
    folder = convert(checkpoint("llama3"), tmp_path / "out")
    (folder / "convert.json").write_text(manifest)
    with pytest.raises(CheckpointError, match=r"convert\.json.*start over with --overwrite"):
        convert(checkpoint("llama3"), folder)
    convert(checkpoint("llama3"), folder, "--overwrite")


def test_folders_that_hold_other_things_are_left_alone(tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="is not empty; name another folder"):
        convert(checkpoint("llama3"), tmp_path)
    with pytest.raises(CheckpointError, match="is a file; name a folder"):
        convert(checkpoint("llama3"), tmp_path / "note.txt")
    with pytest.raises(CheckpointError, match="holds no model that could be overwritten"):
        convert(checkpoint("llama3"), tmp_path, "--overwrite")
    model = shutil.copytree(checkpoint("llama2"), tmp_path / "model")
    (model / "note.txt").write_text("mine")
    for name in ("_METADATA", "index.json"):
        (model / "orbax").mkdir(exist_ok=True)
        (model / "orbax" / name).write_text("{}")
        before = contents(model)
        with pytest.raises(CheckpointError, match="orbax was not written by jaxserve"):
            convert(checkpoint("llama3"), model, "--overwrite")
        assert contents(model) == before
    shutil.rmtree(model / "orbax")
    convert(checkpoint("llama3"), model, "--overwrite")
    assert (model / "note.txt").read_text() == "mine"
    with pytest.raises(CheckpointError, match="is the source itself"):
        convert(model, model, "--overwrite")
    assert_same_model(tree_of(model), tree_of(checkpoint("llama3")))


def test_nothing_of_the_model_before_stays_with_the_one_that_replaces_it(tmp_path):
    before = shutil.copytree(checkpoint("llama2"), tmp_path / "out", ignore=shutil.ignore_patterns("*.npz"))
    for name in ("chat_template.jinja", "added_tokens.json", "generation_config.json", "quantize_config.json"):
        (before / name).write_text("{}")
    convert(checkpoint("llama3"), before, "--overwrite")
    assert contents(before) == contents(convert(checkpoint("llama3"), tmp_path / "new"))
    tree_of(before)


def test_a_conversion_interrupted_in_its_first_part_may_be_overwritten(tmp_path, monkeypatch):
    module = sys.modules["checkpoints.writing.write_orbax"]

    def interrupted(root, part, arrays):
        (root / part).mkdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "save_part", interrupted)
        with pytest.raises(KeyboardInterrupt):
            convert(checkpoint("llama3"), tmp_path / "out", "--format", "orbax")
    convert(checkpoint("llama3"), tmp_path / "out", "--overwrite")
    assert not (tmp_path / "out" / "orbax").exists()


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("safetensors", ["config.json", "tokenizer.json", "model.safetensors.index.json"]),
        ("orbax", ["orbax/index.json"]),
    ],
)
def test_a_small_file_that_was_lost_is_written_again(form, names, tmp_path):
    source = shutil.copytree(checkpoint("llama3"), tmp_path / "source")
    (source / "tokenizer.json").write_text("{}")
    folder = convert(source, tmp_path / "out", *options_of(form))
    expected = contents(folder)
    for name in names:
        (folder / name).unlink()
        convert(source, folder, *options_of(form))
        assert contents(folder) == expected, name


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_small_file_of_the_source_that_changed_is_another_source(name, tmp_path):
    source = shutil.copytree(checkpoint("llama3"), tmp_path / "source")
    convert(source, tmp_path / "out")
    config = json.loads((checkpoint("llama3") / "config.json").read_text())
    (source / name).write_text(json.dumps(config | {"rope_theta": 7.0}))
    with pytest.raises(CheckpointError, match=r"a different conversion \(different source\)"):
        convert(source, tmp_path / "out")


@pytest.mark.parametrize("form", ["safetensors", "orbax"])
def test_an_unfinished_conversion_is_no_model_yet(form, tmp_path, monkeypatch):
    """An interrupt at the last file or part."""
    options = options_of(form)
    whole = convert(checkpoint("llama3"), tmp_path / "whole", *options)
    module = sys.modules[f"checkpoints.writing.write_{form}"]
    name = "save_part" if form == "orbax" else "write_shard"
    write, count = getattr(module, name), []

    def interrupted(*args):
        count.append(args)
        if len(count) == 4:
            raise KeyboardInterrupt
        write(*args)

    monkeypatch.setattr(module, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        convert(checkpoint("llama3"), tmp_path / "cut", *options)
    monkeypatch.setattr(module, name, write)
    with pytest.raises(SourceError, match="unfinished conversion: run the command that began it again"):
        resolve(str(tmp_path / "cut"))
    convert(checkpoint("llama3"), tmp_path / "cut", *options)
    assert_same_model(tree_of(tmp_path / "cut"), tree_of(whole))
    if form == "safetensors":
        assert contents(tmp_path / "cut") == contents(whole)


def test_files_of_the_tokenizer_and_the_template_go_along(tmp_path):
    source = shutil.copytree(checkpoint("llama3"), tmp_path / "source")
    for name in ("tokenizer.json", "chat_template.jinja", "generation_config.json"):
        (source / name).write_text("{}")
    (source / "other.txt").write_text("x")
    folder = convert(source, tmp_path / "out")
    assert {"tokenizer.json", "chat_template.jinja", "generation_config.json"} <= contents(folder).keys()
    assert "other.txt" not in contents(folder)


def test_fp8_weights_become_plain_ones(tmp_path):
    (tmp_path / "fp8").mkdir()
    tensors = {}
    for name, tensor in load_file(checkpoint("llama3") / "model.safetensors").items():
        is_scaled = "_proj" in name
        tensors[name] = tensor.astype(ml_dtypes.float8_e4m3fn) if is_scaled else tensor
        if is_scaled:
            tensors[f"{name}_scale"] = np.array(0.7, np.float32)
    build.write(tmp_path / "fp8" / "model.safetensors", tensors)
    config = json.loads((checkpoint("llama3") / "config.json").read_text())
    (tmp_path / "fp8" / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "fp8"}}))
    folder = convert(tmp_path / "fp8", tmp_path / "plain")
    assert json.loads((folder / "config.json").read_text()) == config
    assert {name for name in tensors if not name.endswith("_scale")} == load_file(folder / "model.safetensors").keys()
    assert_same_model(tree_of(folder), tree_of(tmp_path / "fp8"))


def test_an_orbax_folder_has_no_shards(capsys):
    with pytest.raises(SystemExit):
        run(["model", "folder", "--format", "orbax", "--max-shard-size", "5GB"])
    assert "--max-shard-size needs --format safetensors" in capsys.readouterr().err


def test_a_bucket_is_no_destination(capsys):
    with pytest.raises(SystemExit):
        run(["model", "gs://bucket/folder"])
    assert "is not a local folder: convert to one, then copy it" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["5", "500MB", "2 gb"])
def test_sizes_are_read(text):
    from jaxserve.cli.args.output_model import byte_size

    assert byte_size(text) == {"5": 5, "500MB": 500 * 10**6, "2 gb": 2 * 10**9}[text]


@pytest.mark.parametrize("text", ["", "0", "-1GB", "1.5GB", "5GiB", "much"])
def test_other_sizes_are_refused(text, capsys):
    with pytest.raises(SystemExit):
        run(
            ["a", "b", "--max-shard-size", text] if not text.startswith("-") else ["a", "b", f"--max-shard-size={text}"]
        )
    assert "is not a size such as 500MB or 5GB" in capsys.readouterr().err
