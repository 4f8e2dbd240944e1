"""Weights that are coded by name while loading are those that `jaxserve quantize` writes with the same name."""

import json

import jax
import numpy as np
import pytest

from checkpoints.errors import CheckpointError
from jaxserve import LLM
from jaxserve.cli.convert import run as convert
from jaxserve.cli.quantize import run as quantize
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.model_source import open_model
from jaxserve.engine.build.packing.block_products import DeviceKind
from jaxserve.engine.build.packing.choose_packing import with_packing
from tests.checkpoints import gguf_builder
from tests.checkpoints import safetensors_builder as build
from tests.checkpoints.random_models import Sizes, gguf_tensors, hf_tensors
from tests.end_to_end.packed.test_packed_groups import CONFIG, OPTIONS

SIZES = Sizes(num_heads=8, num_kv_heads=4, head_dim=16, model_dim=128, mlp_dim=256, vocab_size=96, num_layers=2)
OF_SIZES = {
    "hidden_size": SIZES.model_dim,
    "intermediate_size": SIZES.mlp_dim,
    "num_attention_heads": SIZES.num_heads,
    "num_key_value_heads": SIZES.num_kv_heads,
    "vocab_size": SIZES.vocab_size,
}
H100, A100 = DeviceKind("gpu", "NVIDIA H100 80GB HBM3"), DeviceKind("gpu", "NVIDIA A100-SXM4-80GB")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write(tmp_path_factory.mktemp("model") / "model")


def write(folder, **changes):
    folder.mkdir()
    build.write(folder / "model.safetensors", hf_tensors(SIZES) | changes)
    (folder / "config.json").write_text(json.dumps(CONFIG | OF_SIZES))
    return folder


def leaves_of(folder, quantization, **more):
    llm = LLM(str(folder), **OPTIONS, **more, quantization=quantization)
    return llm.parts.runner.settings.model.packing, jax.tree.map(np.asarray, llm.parts.runner.params)


def assert_equal(ours, theirs):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def written(model, folder, name):
    assert quantize([str(model), str(folder), "--scheme", name, "--dtype", "float32", "--quiet"]) == 0
    return folder


@pytest.mark.parametrize("name", ["int4-g64", "nf4", "fp8"])
def test_weights_are_those_of_a_file_that_is_written(name, model, tmp_path):
    is_packed = name != "fp8"
    wanted, theirs = leaves_of(written(model, tmp_path / "out", name), "packed" if is_packed else "dense")
    found, ours = leaves_of(model, name)
    assert (found.own, found.decoded) == (wanted.own, "" if is_packed else name)
    assert_equal(ours, theirs)
    if not is_packed:
        dense = hf_tensors(SIZES)["model.layers.0.mlp.down_proj.weight"]
        assert (ours["layers"]["global"]["down"][0] != dense).mean() > 0.5


def test_devices_have_whole_groups_or_decoded_ones(model, tmp_path):
    """o has 128 inputs: with groups of so many, two devices have halves."""
    name = "int4-g128"
    wanted, theirs = leaves_of(written(model, tmp_path / "out", name), "packed")
    found, ours = leaves_of(model, name, tensor_parallel_size=2)
    assert {path.rpartition("/")[2] for path, _ in found.own} == {"qkv", "gate_up", "down"}
    assert found.own == tuple(item for item in wanted.own if not item[0].endswith("/o"))
    assert found.decoded == name
    for leaves in ours, theirs:
        del leaves["layers"]["global"]["o"]
    assert_equal(ours["layers"], theirs["layers"])  # the embedding is padded for two devices


def test_gguf_files_are_coded_too(model, tmp_path):
    metadata = {
        "general.architecture": "llama",
        "llama.embedding_length": SIZES.model_dim,
        "llama.block_count": SIZES.num_layers,
        "llama.feed_forward_length": SIZES.mlp_dim,
        "llama.attention.head_count": SIZES.num_heads,
        "llama.attention.head_count_kv": SIZES.num_kv_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.context_length": 64,
        "llama.vocab_size": SIZES.vocab_size,
    }
    path = gguf_builder.write(tmp_path / "m.gguf", gguf_tensors(SIZES, hf_tensors(SIZES)), metadata)
    assert_equal(leaves_of(path, "int4-g32")[1], leaves_of(model, "int4-g32")[1])


def packing_on(device, model, name, **more):
    config = EngineConfig.create(model, **OPTIONS | {"dtype": "bfloat16"} | more, quantization=name)
    with open_model(config) as source:
        return with_packing(config, source, device).packing


def test_random_weights_have_codes_where_these_are_kept():
    for name in ("int4-g64", "nf4"):
        on_gpu = packing_on(H100, "llama-3-8b", name, load_format="dummy")
        assert {path.rpartition("/")[2] for path, _ in on_gpu.own} == {"qkv", "o", "gate_up", "down"}
        assert on_gpu.decoded == ""
    with pytest.raises(ConfigError, match="would not change the size of random weights"):
        packing_on(A100, "llama-3-8b", "fp8", load_format="dummy")


def test_what_has_no_product_or_no_codes_is_refused_by_name(model, tmp_path):
    advice = "name int8 or w8a8, or load what `jaxserve quantize` writes"
    with pytest.raises(ConfigError, match=rf"'int4-g64': the codes are not multiplied here \(.*A100.*\): {advice}"):
        packing_on(A100, "llama-3-8b", "int4-g64", load_format="dummy")
    assert packing_on(A100, str(model), "fp8").decoded == "fp8"
    with pytest.raises(ConfigError, match="layers/global/gate_up has 576 inputs, no multiple of 128"):
        packing_on(DeviceKind("cpu"), "smollm2-135m", "int4-g128", load_format="dummy")
    with pytest.raises(ConfigError, match=r"'gptq-g64': must be one of .*; `jaxserve quantize` writes this one"):
        EngineConfig.create("m", quantization="gptq-g64")
    name = "model.layers.1.mlp.down_proj.weight"
    infinite = hf_tensors(SIZES)[name]
    infinite[3, 5] = np.inf
    with pytest.raises(CheckpointError, match=f"{name} cannot be quantized: it has values that are not finite"):
        leaves_of(write(tmp_path / "infinite", **{name: infinite}), "fp8")
    odd = {name: np.ones((SIZES.model_dim, 80), np.float32)}
    with pytest.raises(ConfigError, match=rf"'nf4': {name} has no such codes: 80 inputs are not a multiple of 64"):
        leaves_of(write(tmp_path / "odd", **odd), "nf4")
    convert([str(model), str(tmp_path / "orbax"), "--format", "orbax", "--quiet"])
    with pytest.raises(ConfigError, match="'int4-g64': weights of an Orbax folder are not coded while loading"):
        leaves_of(tmp_path / "orbax", "int4-g64")
