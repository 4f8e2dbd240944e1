"""Packed weights are saved as they are: a folder has their codes, whatever mesh they come from, and gives them back."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from checkpoints.formats.orbax_folder import OrbaxFile
from checkpoints.mapping.never_packed import CUT
from jaxserve import LLM
from jaxserve.cli import convert, inspect, plan
from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import device_bytes
from jaxserve.engine.build.packing import choose_packing, coded_source
from jaxserve.models.packing import Packing
from jaxserve.runner.programs.programs import Programs
from jaxserve.runner.programs.slot_programs import set_masks
from pallas_kernels.qtensor import FP8
from tests.checkpoints import safetensors_builder as build
from tests.checkpoints.random_models import hf_tensors
from tests.end_to_end.packed import test_packed_blocks as blocks
from tests.end_to_end.packed import test_packed_groups as groups
from tests.end_to_end.packed.test_updates_of_packed import in_orders, tokens
from tests.support.processes.command_line import check_mistake_here
from tests.support.tiny_engines import flags_of

PACKED, DENSE = {"quantization": "packed"}, {"quantization": "dense"}
SIZES = replace(groups.SIZES, vocab_size=100)
"""Whose vocabulary engines pad."""


def engine(path, **options):
    """Nothing is compiled for one that computes nothing."""
    return LLM(str(path), **blocks.OPTIONS, **options)


def params_of(path, **options):
    return engine(path, **options).parts.runner.params


def saved(path, folder, **options):
    """The weights of an engine that was saved."""
    llm = engine(path, **options)
    llm.save(folder)
    return llm.parts.runner.params


def assert_equal(found, expected):
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def assert_close(found, expected):
    """Compiled, a product and a sum may be rounded once instead of twice."""
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7), found, expected)


def stored_bytes(folder):
    return sum(info.nbytes for info in OrbaxFile(folder / "orbax").tensors.values())


def dense_model(folder):
    folder.mkdir()
    build.write(folder / "model.safetensors", hf_tensors(SIZES))
    (folder / "config.json").write_text(json.dumps(groups.CONFIG | {"vocab_size": SIZES.vocab_size}))
    return folder


class Saved(NamedTuple):
    """A model, the folder saved from an engine of it, and that engine's weights."""

    path: Path
    folder: Path
    params: Any


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    """Of one layer, whose queries, keys and values differ."""
    root = tmp_path_factory.mktemp("gguf")
    path, _ = blocks.write_model(root / "m.gguf", blocks.LAYERS[1:2])
    return Saved(path, root / "saved", saved(path, root / "saved", **PACKED))


@pytest.fixture(scope="module")
def coded(tmp_path_factory):
    """By scheme, of a dense model whose matrices get codes while they are loaded."""
    root = tmp_path_factory.mktemp("coded")
    path = dense_model(root / "model")
    schemes = "int8", "int4-g32"
    return {name: Saved(path, root / name, saved(path, root / name, quantization=name)) for name in schemes}


def test_a_folder_has_the_codes_of_the_file(gguf):
    assert stored_bytes(gguf.folder) == device_bytes(gguf.params)
    llm = engine(gguf.folder, **PACKED)
    assert_equal(llm.parts.runner.params, gguf.params)
    llm.update_weights(gguf.params)
    decoded = params_of(gguf.path, **DENSE)
    assert_close(params_of(gguf.folder, **DENSE), decoded)
    assert stored_bytes(gguf.folder) < 0.6 * device_bytes(decoded)


def of_groups(root, make):
    groups.write_model(root / "model", make)
    return Saved(root / "model", root / "saved", saved(root / "model", root / "saved", **PACKED))


@pytest.fixture(scope="module")
def ordered(tmp_path_factory):
    """Of groups of inputs in orders of their own."""
    return of_groups(tmp_path_factory.mktemp("ordered"), in_orders)


@pytest.mark.parametrize("make", [None, groups.four_bits])
def test_orders_and_scales_of_scales_are_in_a_folder(ordered, make, tmp_path):
    _, folder, params = of_groups(tmp_path, make) if make else ordered
    of_zeros = sum(
        values.nbytes
        for path, values in jax.tree_util.tree_leaves_with_path(params)
        if "packed_zeros" in jax.tree_util.keystr(path)
    )
    assert (of_zeros > 0) == (make is None)
    assert stored_bytes(folder) == device_bytes(params) + of_zeros, "a byte for each zero point, not for two"
    assert_equal(params_of(folder, **PACKED), params)


def test_a_converted_folder_is_the_converted_file(ordered, tmp_path):
    converted = {}
    for source in (ordered.path, ordered.folder):
        target = tmp_path / source.name
        assert convert.run([str(source), str(target), "--dtype", "float32", "--quiet"]) == 0
        converted[source] = load_file(target / "model.safetensors")
    assert_close(converted[ordered.folder], converted[ordered.path])


def test_a_file_is_converted_with_its_codes(tmp_path, capsys):
    groups.write_model(tmp_path / "model", groups.MAKERS["awq"][0])
    orbax = ["--format", "orbax", "--dtype", "float32"]
    given = [str(tmp_path / "model"), str(tmp_path / "packed"), "--quantization", "packed"]
    assert convert.run([*given, *orbax]) == 0
    assert capsys.readouterr().err.endswith("packed is ready\n")
    assert_equal(params_of(tmp_path / "packed", **PACKED), params_of(tmp_path / "model", **PACKED))
    check_mistake_here(["convert", *given, *orbax], "packed is not empty; name another folder", capsys)
    check_mistake_here(["convert", *given], "--quantization needs --format orbax", capsys)
    check_mistake_here(["convert", *given, *orbax, "--overwrite"], "--overwrite has no use", capsys)


@pytest.mark.parametrize("scheme", ["int8", "int4-g32"])
def test_codes_that_were_made_while_loading_are_saved(coded, scheme):
    """With those of embedding and head, but for the padding of the vocabulary."""
    _, folder, params = coded[scheme]
    assert_equal(params_of(folder, quantization="int8" if scheme == "int8" else "packed"), params)
    assert 0.5 < stored_bytes(folder) / device_bytes(params) < 1


def test_what_is_saved_of_rows_does_not_depend_on_the_mesh(coded, tmp_path):
    """On four devices each KV head lies twice."""
    path, one, params = coded["int8"]
    shared = saved(path, tmp_path / "many", quantization="int8", tensor_parallel_size=4)
    assert_equal(params_of(one, **PACKED, tensor_parallel_size=4), shared)
    assert (tmp_path / "many/orbax/index.json").read_bytes() == (one / "orbax/index.json").read_bytes()
    assert_equal(params_of(tmp_path / "many"), params)


def test_blocks_of_which_devices_would_have_parts_are_refused(gguf):
    for path in gguf.path, gguf.folder:
        with pytest.raises(ConfigError, match=rf"over 4 devices \(down: {CUT}\)"):
            engine(path, **PACKED, tensor_parallel_size=4)


@pytest.mark.thorough
def test_an_engine_of_a_folder_gives_the_same_tokens(gguf):
    """Its programs are those of the file's engine, since they follow from the model and its packing."""
    found, llm = blocks.texts(gguf.folder, **PACKED)
    ours, theirs = (of.parts.runner.settings.model for of in (llm, engine(gguf.path, **PACKED)))
    assert replace(ours.config, dtype=theirs.config.dtype) == theirs.config
    assert set(ours.packing.own) == set(theirs.packing.own)
    llm.update_weights(jax.tree.map(lambda leaf: leaf[::-1], gguf.params))
    assert tokens(blocks, llm) != found, "the control"
    llm.update_weights(gguf.params)
    assert tokens(blocks, llm) == found


def test_rows_of_fp8_are_blocks_where_they_are_not_multiplied(coded, tmp_path, monkeypatch):
    path, folder = coded["int8"].path, tmp_path / "saved"
    with monkeypatch.context() as on_hopper:
        for module in (coded_source, choose_packing):
            on_hopper.setattr(module, "fp8_packing", lambda *_: Packing(layers=FP8))
        params = saved(path, folder, quantization="fp8")
        assert_equal(params_of(folder, **PACKED), params)
    trees = params, params_of(folder, **PACKED), params_of(folder, **DENSE)
    (rows,), (blocks_of_rows,), (decoded,) = (tree["layers"].values() for tree in trees)
    assert (rows["down"].scheme, blocks_of_rows["down"].form.name) == (FP8, "FP8-g256")
    assert_equal(blocks_of_rows["down"].fields["codes"], rows["down"].codes)
    for values, codes, scales in zip(decoded["qkv"], rows["qkv"].codes, rows["qkv"].scales, strict=True):
        assert_close(values, np.asarray(codes, np.float32) * np.asarray(scales)[..., None])


def test_descriptions_and_plans_state_forms_and_bytes(gguf, tmp_path, monkeypatch, capsys):
    assert inspect.run([str(gguf.folder), "--quantization", "packed", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["quantization"] == "Q5_0, Q6_K, Q8_0"
    assert set(found["stored_types"]) == {"Q5_0", "Q5_0, Q8_0", "Q6_K", "Q8_0", "float32"}
    assert found["stored_bytes"] == found["loaded_bytes"] == device_bytes(gguf.params)
    # One program stands for all, whose compilation takes seconds.
    monkeypatch.setattr(Programs, "all", lambda programs, buckets: [set_masks(programs, 4)])
    flags = flags_of({name: value for name, value in blocks.OPTIONS.items() if name != "skip_tokenizer_init"} | PACKED)
    assert plan.run([str(gguf.folder), "--quiet", "--json", str(tmp_path / "plan.json"), *flags]) == 0
    planned = json.loads((tmp_path / "plan.json").read_text())["memory"]["weight_bytes"]
    assert planned == device_bytes(gguf.params)
