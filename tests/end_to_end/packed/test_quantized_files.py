"""Files whose layers have 8-bit codes and a scale for each row are kept as they are, and give the tokens of a naive
loop."""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from jaxserve import LLM, pure
from jaxserve.cli.convert import run as convert
from jaxserve.cli.quantize import run as quantize
from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import device_bytes
from pallas_kernels.qtensor import QTensor
from tests.end_to_end.packed.packed_weights import decoded, greedy_texts, is_packed, naive
from tests.support.golden_data import checkpoint
from tests.support.tiny_engines import SMALL

FAMILY = "llama3"
OPTIONS = SMALL | {"skip_tokenizer_init": True}


@pytest.fixture(scope="module", params=["int8", "w8a8"])
def quantized(request, tmp_path_factory):
    """(the scheme, a folder of its codes)."""
    folder = tmp_path_factory.mktemp("quantized") / request.param
    assert quantize([str(checkpoint(FAMILY)), str(folder), "--scheme", request.param, "--quiet"]) == 0
    return request.param, folder


@pytest.mark.thorough
def test_codes_are_those_of_the_file_and_tokens_those_of_a_naive_loop(quantized):
    scheme, folder = quantized
    llm = LLM(str(folder), tensor_parallel_size=2, **OPTIONS)
    params = llm.parts.runner.params
    assert not is_packed(params["embed"])
    (stack,) = params["layers"].values()
    assert stack["down"].scheme.name == scheme
    stored = load_file(folder / "model.safetensors")
    for layer, codes in enumerate(stack["down"].codes):
        name = f"model.layers.{layer}.mlp.down_proj"
        np.testing.assert_array_equal(stack["down"].scales[layer], stored[f"{name}.weight_scale"][:, 0])
        words = stored.get(f"{name}.weight_packed")
        bytes_of_file = stored[f"{name}.weight"] if words is None else words.view(np.uint8).astype(np.int16) - 128
        np.testing.assert_array_equal(codes, bytes_of_file)
    assert greedy_texts(llm, FAMILY) == naive(llm, decoded(params) if scheme == "int8" else params, FAMILY)


def test_the_device_has_the_bytes_of_the_file(quantized):
    """But for the padding of the vocabulary."""
    _, folder = quantized
    llm = LLM(str(folder), **OPTIONS)
    stored = sum(tensor.nbytes for name, tensor in load_file(folder / "model.safetensors").items() if "proj" in name)
    (stack,) = llm.parts.runner.params["layers"].values()
    assert abs(device_bytes([leaf for leaf in stack.values() if isinstance(leaf, QTensor)]) / stored - 1) < 0.02


def test_weights_are_decoded_or_coded_anew_where_that_is_asked_for(quantized):
    scheme, folder = quantized
    dense, packed = (pure.load(str(folder), quantization=form, dtype="float32").params for form in ("dense", "packed"))
    assert not any(map(is_packed, jax.tree.leaves(dense, is_leaf=is_packed)))
    jax.tree.map(np.testing.assert_array_equal, decoded(packed), dense)
    other = {"int8": "w8a8", "w8a8": "int8"}[scheme]
    whole = pure.load(str(folder), quantization=other, dtype="float32").params
    assert whole["embed"].scheme.name == other
    (found,), (kept,) = (tree["layers"].values() for tree in (whole, packed))
    jax.tree.map(np.testing.assert_array_equal, found["qkv"].codes, kept["qkv"].codes)


def test_other_files_are_dense_and_cannot_stay_packed(quantized, tmp_path):
    assert quantize([str(checkpoint(FAMILY)), str(tmp_path / "fp8"), "--scheme", "fp8", "--quiet"]) == 0
    mixed = tmp_path / "mixed"
    assert convert([str(quantized[1]), str(mixed), "--quiet"]) == 0
    for folder in (checkpoint(FAMILY), tmp_path / "fp8", mixed):
        assert not is_packed(next(iter(pure.load(str(folder)).params["layers"].values()))["down"])
    for folder in (checkpoint(FAMILY), mixed):  # FP8 stays packed if that is asked for (`test_packed_groups.py`)
        with pytest.raises(ConfigError, match="quantization='packed' keeps weights as the file has them") as refusal:
            LLM(str(folder), quantization="packed", **OPTIONS)
        assert refusal.value.param == "quantization"
    assert "quantization_config" not in json.loads((mixed / "config.json").read_text())
