"""Packed weights are saved as they are: a folder has their codes, whatever mesh they come from, and gives them back."""

import json
import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest

from checkpoints.errors import CheckpointError
from checkpoints.formats.orbax_folder import OrbaxFile
from jaxserve import LLM
from jaxserve.cli import inspect, plan
from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import device_bytes
from jaxserve.engine.build.packing import choose_packing, coded_source
from jaxserve.models.packing import Packing
from jaxserve.runner.programs.programs import Programs
from pallas_kernels.block_tensor import BlockTensor, RowParts
from pallas_kernels.qtensor import FP8
from tests.checkpoints import safetensors_builder as build
from tests.checkpoints.random_models import hf_tensors
from tests.end_to_end.packed import test_packed_blocks as blocks
from tests.end_to_end.packed import test_packed_groups as groups
from tests.end_to_end.packed.test_updates_of_packed import in_orders, tokens
from tests.support.tiny_engines import flags_of

PACKED, DENSE = {"quantization": "packed"}, {"quantization": "dense"}
MAKERS = {
    "gptq": in_orders,
    "awq": groups.awq,
    "fp8 and integers": groups.floats_and_ints,
    "nf4": groups.four_bits,
    "rows": groups.rows_of_8_bits,
}
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


def model_of(folder, form):
    if form == "gguf":
        return blocks.write_model(folder / "mixed.gguf", blocks.LAYERS[1:3])[0]
    groups.write_model(folder / "model", MAKERS[form])
    return folder / "model"


def dense_model(folder):
    build.write(folder / "model.safetensors", hf_tensors(SIZES))
    (folder / "config.json").write_text(json.dumps(groups.CONFIG | {"vocab_size": SIZES.vocab_size}))
    return folder


@pytest.mark.parametrize("form", ["gguf", *MAKERS])
def test_a_folder_has_the_codes_of_the_file(form, tmp_path):
    path, folder = model_of(tmp_path, form), tmp_path / "saved"
    params = saved(path, folder, **PACKED)
    assert stored_bytes(folder) == device_bytes(params)
    llm = engine(folder, **PACKED)
    assert_equal(llm.parts.runner.params, params)
    llm.update_weights(params)
    decoded = params_of(path, **DENSE)
    assert_close(params_of(folder, **DENSE), decoded)
    assert stored_bytes(folder) < 0.6 * device_bytes(decoded)
    if form == "rows":
        assert_equal(params_of(folder), params)


@pytest.mark.parametrize("scheme", ["int8", "w8a8", "int4-g32"])
def test_codes_that_were_made_while_loading_are_saved(scheme, tmp_path):
    """With those of embedding and head, but for the padding of the vocabulary."""
    path, folder = dense_model(tmp_path), tmp_path / "saved"
    params = saved(path, folder, quantization=scheme)
    assert_equal(params_of(folder, **PACKED), params)
    assert 0.5 < stored_bytes(folder) / device_bytes(params) < 1
    if not scheme.startswith("int4"):
        assert_equal(params_of(folder, quantization=scheme), params)
    with pytest.raises(ConfigError, match="an Orbax folder are not coded while loading"):
        engine(folder, quantization="w8a8" if scheme == "int8" else "int8")


def of_qkv(params):
    return {name: stack["qkv"] for name, stack in params["layers"].items()}


@pytest.mark.parametrize("form", ["int8", "gguf"])
def test_what_is_saved_does_not_depend_on_the_mesh(form, tmp_path):
    """On four devices each KV head lies twice, and what has parts of some blocks is decoded."""
    is_gguf = form == "gguf"
    path = blocks.write_model(tmp_path / "m.gguf", blocks.LAYERS[1:2])[0] if is_gguf else dense_model(tmp_path)
    options = PACKED if is_gguf else {"quantization": form}
    params = saved(path, tmp_path / "one", **options)
    shared = saved(path, tmp_path / "many", **options, tensor_parallel_size=4)
    divided = engine(tmp_path / "one", **PACKED, tensor_parallel_size=4)
    assert_equal(divided.parts.runner.params, shared)
    (stack,), (again,) = (tree["layers"].values() for tree in (params, params_of(tmp_path / "many", **PACKED)))
    if is_gguf:
        assert "Q6_K (down: a device's share, 1 of 4, ends within a block of inputs)" in divided._description()
        assert isinstance(again["qkv"], RowParts)
        assert not isinstance(again["down"], BlockTensor)
        assert_equal(again | {"down": None}, stack | {"down": None})
        return
    one, many = (tmp_path / name / "orbax" / "index.json" for name in ("one", "many"))
    assert many.read_bytes() == one.read_bytes()
    assert_equal(again, stack)


def test_an_engine_of_a_folder_gives_the_same_tokens(tmp_path):
    path = blocks.write_model(tmp_path / "m.gguf", blocks.LAYERS[1:2])[0]
    before, llm = blocks.texts(path, **PACKED)
    llm.save(tmp_path / "saved")
    found, loaded = blocks.texts(tmp_path / "saved", **PACKED)
    assert found == before
    restored = loaded.parts.runner.params
    llm.update_weights(jax.tree.map(lambda leaf: leaf[::-1], restored))
    assert tokens(blocks, llm) != before, "the control"
    llm.update_weights(restored)
    assert tokens(blocks, llm) == before


def test_rows_of_fp8_are_blocks_where_they_are_not_multiplied(tmp_path, monkeypatch):
    path, folder = dense_model(tmp_path), tmp_path / "saved"
    with monkeypatch.context() as on_hopper:
        for module in (coded_source, choose_packing):
            on_hopper.setattr(module, "fp8_packing", lambda *_: Packing(layers=FP8))
        params = saved(path, folder, quantization="fp8")
        assert_equal(params_of(folder, **PACKED), params)
    (rows,), (blocks_of_rows,) = (tree["layers"].values() for tree in (params, params_of(folder, **PACKED)))
    assert (rows["down"].scheme, blocks_of_rows["down"].form.name) == (FP8, "FP8-g256")
    assert_equal(blocks_of_rows["down"].fields["codes"], rows["down"].codes)
    assert_close(params_of(folder, **DENSE), params_of(path, quantization="fp8"))


def test_descriptions_and_plans_state_forms_and_bytes(tmp_path, monkeypatch, capsys):
    path, folder = blocks.write_model(tmp_path / "m.gguf", blocks.LAYERS[1:2])[0], tmp_path / "saved"
    params = saved(path, folder, **PACKED)
    assert inspect.run([str(folder), "--quantization", "packed", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["quantization"] == "Q5_0, Q6_K, Q8_0"
    assert set(found["stored_types"]) == {"Q5_0", "Q5_0, Q8_0", "Q6_K", "Q8_0", "float32"}
    assert found["stored_bytes"] == found["loaded_bytes"] == device_bytes(params)
    # One program stands for all, whose compilation takes seconds.
    monkeypatch.setattr(Programs, "all", lambda programs, buckets: [programs.set_masks(4)])
    flags = flags_of({name: value for name, value in blocks.OPTIONS.items() if name != "skip_tokenizer_init"} | PACKED)
    assert plan.run([str(folder), "--quiet", "--json", str(tmp_path / "plan.json"), *flags]) == 0
    planned = json.loads((tmp_path / "plan.json").read_text())["memory"]["weight_bytes"]
    assert planned == device_bytes(params)


def test_folders_put_together_of_several_are_refused(tmp_path):
    folders = {form: tmp_path / form for form in ("int8", "int4-g32", "dense")}
    for form, folder in folders.items():
        saved(dense_model(tmp_path), folder, quantization=form)
    for form, fault in (
        ("int4-g32", r"rows of codes are for all matrices of the layers, not beside others: \['INT4-g32', 'int8'\]"),
        ("dense", "form: layer-00001/down is float32, from which that of the engine cannot be made"),
    ):
        mixed = tmp_path / f"mixed-{form}"
        shutil.copytree(folders["int8"], mixed)
        shutil.copytree(folders[form] / "orbax" / "layer-00001", mixed / "orbax" / "layer-00001", dirs_exist_ok=True)
        path = mixed / "orbax" / "index.json"
        table, other = (json.loads(place.read_text()) for place in (path, folders[form] / "orbax" / "index.json"))
        for name in ("parts", "forms"):
            table[name]["layer-00001"] = other.get(name, {}).get("layer-00001", {})
        path.write_text(json.dumps(table))
        with pytest.raises(CheckpointError, match=fault):
            engine(mixed)
