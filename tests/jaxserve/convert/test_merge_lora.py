"""`jaxserve merge-lora` writes the model's tensors with the adapter's products added, rounded once."""

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from checkpoints.formats.safetensors import SafetensorsFile
from jaxserve.cli.main import main
from jaxserve.convert import convert_model
from tests.checkpoints import safetensors_builder as build
from tests.support.gguf_checkpoints import write_gguf
from tests.support.golden_data import checkpoint

UNFUSED = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj mlp.gate_proj mlp.up_proj mlp.down_proj"
FUSED = "self_attn.qkv_proj self_attn.o_proj mlp.gate_up_proj mlp.down_proj"
MODULES = {"llama3": UNFUSED, "gemma3": UNFUSED, "qwen2": UNFUSED, "phi3": FUSED}
SCALE, RANK = 2.5, 3


def adapter_of(family, folder, modules=None, layers=(0, 2)):
    """Writes a random adapter for some layers; returns what it adds to each tensor, by plain products."""
    rng, base = np.random.default_rng(5), load_file(checkpoint(family) / "model.safetensors")
    modules, tensors, added = (modules or MODULES[family]).split(), {}, {}
    for layer in layers:
        for module in modules:
            name = f"model.layers.{layer}.{module}"
            num_out, num_in = base[f"{name}.weight"].shape
            a, b = (rng.standard_normal(shape, np.float32) for shape in ((RANK, num_in), (num_out, RANK)))
            tensors |= {f"base_model.model.{name}.lora_{side}.weight": x for side, x in (("A", a), ("B", b))}
            added[f"{name}.weight"] = np.float32(SCALE) * b @ a
    folder.mkdir(exist_ok=True)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": SCALE * RANK, "layers_to_transform": list(layers)}
    (folder / "adapter_config.json").write_text(json.dumps(config | {"target_modules": modules}))
    build.write(folder / "adapter_model.safetensors", tensors)
    return added


def merge(source, adapter, folder, *options):
    assert main(["merge-lora", str(source), str(adapter), "--output", str(folder), "--quiet", *options]) == 0
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("family", MODULES)
def test_products_are_added_and_all_else_is_kept(family, tmp_path):
    added = adapter_of(family, tmp_path / "adapter")
    merged = merge(checkpoint(family), tmp_path / "adapter", tmp_path / "out")
    base = load_file(checkpoint(family) / "model.safetensors")
    assert merged.keys() == base.keys() >= added.keys()
    for name, values in base.items():
        np.testing.assert_allclose(merged[name], values + added.get(name, 0), rtol=1e-5, atol=2e-6, err_msg=name)
    assert all(np.abs(values).max() > 0.5 for values in added.values())


def test_a_sum_is_rounded_once(tmp_path):
    added = adapter_of("llama3", tmp_path / "adapter")
    merge(checkpoint("llama3"), tmp_path / "adapter", tmp_path / "out", "--dtype", "bfloat16")
    exact = merge(checkpoint("llama3"), tmp_path / "adapter", tmp_path / "exact")
    rounded, num_different = SafetensorsFile(tmp_path / "out" / "model.safetensors"), 0
    base = load_file(checkpoint("llama3") / "model.safetensors")
    for name in added:
        values = rounded.read_rows(name, 0, rounded.tensors[name].num_rows)
        np.testing.assert_array_equal(values, exact[name].astype(ml_dtypes.bfloat16))
        twice = base[name].astype(ml_dtypes.bfloat16).astype(np.float32) + added[name]
        num_different += np.count_nonzero(values != twice.astype(ml_dtypes.bfloat16))
    assert num_different > 100
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"


def test_a_part_of_a_fused_tensor_may_be_adapted(tmp_path):
    """Of an adapter whose modules are apart, in a model whose tensors are not."""
    added = adapter_of("phi3", tmp_path / "adapter", "self_attn.o_proj")
    base = load_file(checkpoint("phi3") / "model.safetensors")
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((RANK, 32), np.float32), rng.standard_normal((48, RANK), np.float32)
    name = "base_model.model.model.layers.0.mlp.up_proj.lora_"
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    config |= {"target_modules": ["up_proj"], "layers_to_transform": [0]}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    build.write(tmp_path / "adapter" / "adapter_model.safetensors", {f"{name}A.weight": a, f"{name}B.weight": b})
    merged = merge(checkpoint("phi3"), tmp_path / "adapter", tmp_path / "out")
    tensor = "model.layers.0.mlp.gate_up_proj.weight"
    np.testing.assert_array_equal(merged[tensor][:48], base[tensor][:48])
    np.testing.assert_allclose(merged[tensor][48:] - base[tensor][48:], SCALE * b @ a, rtol=1e-4, atol=1e-5)
    for name in added:
        np.testing.assert_array_equal(merged[name], base[name])


def test_queries_and_keys_of_a_gguf_file_are_in_the_adapters_order(tmp_path, monkeypatch):
    monkeypatch.setattr(convert_model, "export_source", lambda *_: None)  # the file has no tokenizer
    added = adapter_of("llama2", tmp_path / "adapter", UNFUSED)
    write_gguf(checkpoint("llama2"), tmp_path / "model.gguf")
    merged = merge(tmp_path / "model.gguf", tmp_path / "adapter", tmp_path / "out", "--dtype", "float32")
    base = load_file(checkpoint("llama2") / "model.safetensors")
    for name in added:
        np.testing.assert_allclose(merged[name], base[name] + added[name], rtol=1e-5, atol=2e-6)


def test_quantized_weights_are_decoded_first(tmp_path):
    adapter_of("llama3", tmp_path / "adapter")
    assert main(["quantize", str(checkpoint("llama3")), str(tmp_path / "int8"), "--scheme", "int8", "--quiet"]) == 0
    plain = tmp_path / "plain"
    assert main(["convert", str(tmp_path / "int8"), str(plain), "--dtype", "float32", "--quiet"]) == 0
    expected = merge(plain, tmp_path / "adapter", tmp_path / "a")
    found = merge(tmp_path / "int8", tmp_path / "adapter", tmp_path / "b", "--dtype", "float32")
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    assert "quantization_config" not in json.loads((tmp_path / "b" / "config.json").read_text())


def test_an_interrupted_merge_goes_on_with_the_same_adapter_only(tmp_path, monkeypatch, capsys):
    adapter_of("llama3", tmp_path / "adapter")
    options = ("--max-shard-size", "50KB", "--quiet")
    command = ["merge-lora", str(checkpoint("llama3")), str(tmp_path / "adapter"), "--output"]
    assert main([*command, str(tmp_path / "whole"), *options]) == 0

    class Interrupted(convert_model.MergedLeaves):
        def read(self, part, name):
            if part.name == "layer-00002":
                raise KeyboardInterrupt
            return super().read(part, name)

    monkeypatch.setattr(convert_model, "MergedLeaves", Interrupted)
    assert main([*command, str(tmp_path / "out"), *options]) == 130
    monkeypatch.undo()
    kept = {path.name: path.stat().st_ino for path in (tmp_path / "out").glob("model-*")}
    assert kept
    assert main([*command, str(tmp_path / "out"), *options]) == 0
    for path in (tmp_path / "whole").glob("*.safetensors"):
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    assert all((tmp_path / "out" / name).stat().st_ino == inode for name, inode in kept.items())
    adapter_of("llama3", tmp_path / "adapter", layers=(0, 1))
    assert main([*command, str(tmp_path / "out"), *options]) == 2
    assert "different adapter" in capsys.readouterr().err


def test_mistakes_are_named(tmp_path, capsys):
    adapter_of("llama3", tmp_path / "adapter")
    command = ["merge-lora", str(checkpoint("llama2")), str(tmp_path / "adapter"), "--output", str(tmp_path / "out")]
    assert main(command) == 2
    assert "the model needs" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    command[2] = str(tmp_path / "nothing")
    assert main(command) == 2
    assert "is not the name of an adapter" in capsys.readouterr().err
