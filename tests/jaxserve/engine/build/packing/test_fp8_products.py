"""Rows of FP8 stay packed where devices multiply them, and give the tokens of a naive loop of the same codes."""

import json

import jax
import ml_dtypes
import numpy as np
import pytest

from jaxserve import LLM
from jaxserve.cli.quantize import run as quantize
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.model_source import open_model
from jaxserve.engine.build.packing import choose_packing, coded_source
from jaxserve.engine.build.packing.block_products import DeviceKind
from jaxserve.engine.build.packing.choose_packing import with_packing
from jaxserve.models.packing import DENSE, Packing
from pallas_kernels.qtensor import FP8, encode
from tests.end_to_end.packed.packed_weights import greedy_texts, naive
from tests.jaxserve.engine.build.packing.test_coded_source import write
from tests.support.golden_data import checkpoint
from tests.support.tiny_engines import SMALL

FAMILY = "llama3"
DTYPES = {"F8_E4M3": ml_dtypes.float8_e4m3fn, "F32": np.float32}
ROWS = Packing(layers=FP8)
OPTIONS = SMALL | {"skip_tokenizer_init": True}
CPU, A100 = DeviceKind("cpu"), DeviceKind("gpu", "NVIDIA A100-SXM4-80GB")
V6E, TPU7X, H200 = DeviceKind("tpu", "TPU v6 lite"), DeviceKind("tpu", "TPU7x"), DeviceKind("gpu", "NVIDIA H200")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file of `jaxserve quantize --scheme fp8`."""
    folder = tmp_path_factory.mktemp("fp8") / "model"
    assert quantize([str(checkpoint(FAMILY)), str(folder), "--scheme", "fp8", "--quiet"]) == 0
    return folder


@pytest.fixture
def is_multiplied_here(monkeypatch):
    """XLA multiplies FP8 on CPUs, too, which no engine uses: it is slow."""
    for module in (choose_packing, coded_source):
        monkeypatch.setattr(module, "fp8_packing", lambda *_: ROWS)


def packing_on(device, model, quantization, **options):
    config = EngineConfig.create(str(model), quantization=quantization, **options)
    with open_model(config) as source:
        return with_packing(config, source, device).packing


def stored(folder, name):
    """A tensor of the file; safetensors' own reader has no FP8 for NumPy."""
    data = (folder / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    info = json.loads(data[8:begin])[name]
    start, stop = info["data_offsets"]
    values = np.frombuffer(data[begin + start : begin + stop], DTYPES[info["dtype"]])
    return values.reshape(info["shape"])


@pytest.mark.thinned(1)
@pytest.mark.parametrize("num_devices", [1, 2])
def test_codes_are_those_of_the_file_and_tokens_those_of_a_naive_loop(folder, num_devices, is_multiplied_here):
    llm = LLM(str(folder), quantization="packed", tensor_parallel_size=num_devices, **OPTIONS)
    params = llm.parts.runner.params
    down = params["layers"]["global"]["down"]
    for layer, codes in enumerate(down.codes):
        name = f"model.layers.{layer}.mlp.down_proj.weight"
        np.testing.assert_array_equal(np.asarray(codes), stored(folder, name))
        np.testing.assert_array_equal(down.scales[layer], stored(folder, f"{name}_scale")[:, 0])
    assert greedy_texts(llm, FAMILY) == naive(llm, params, FAMILY)
    assert "with fp8 weights" in llm._description()


def test_weights_that_are_coded_while_loading_are_those_of_the_file(folder, is_multiplied_here):
    ours, theirs = (
        LLM(str(path), quantization=name, **OPTIONS).parts.runner.params
        for path, name in ((checkpoint(FAMILY), "fp8"), (folder, "packed"))
    )
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), ours, theirs)


def test_codes_of_other_schemes_are_made_of_decoded_rows(folder):
    """Not of the file's bytes."""
    down = LLM(str(folder), quantization="int8", **OPTIONS).parts.runner.params["layers"]["global"]["down"]
    for layer, codes in enumerate(down.codes):
        name = f"model.layers.{layer}.mlp.down_proj.weight"
        expected, scales = encode(stored(folder, name).astype(np.float32) * stored(folder, f"{name}_scale"))
        np.testing.assert_array_equal(np.asarray(codes), expected)
        np.testing.assert_array_equal(down.scales[layer], scales)


def test_devices_that_multiply_fp8_keep_it(tmp_path):
    model = write(tmp_path / "model")
    assert quantize([str(model), str(tmp_path / "fp8"), "--scheme", "fp8", "--quiet"]) == 0
    for device in (TPU7X, H200):
        assert (
            packing_on(device, tmp_path / "fp8", "auto", dtype="bfloat16")
            == packing_on(device, tmp_path / "fp8", "packed")
            == ROWS
        )
        assert packing_on(device, tmp_path / "fp8", "auto", dtype="float32") != ROWS, "activations are not coded"
        assert packing_on(device, model, "fp8") == ROWS
        assert packing_on(device, "llama-3-8b", "fp8", load_format="dummy") == ROWS
    for device in (CPU, A100):
        assert packing_on(device, tmp_path / "fp8", "auto").layers is None
    for device in (CPU, A100, V6E):
        found = packing_on(device, model, "fp8")
        assert (found, found.decoded) == (DENSE, "fp8"), "rounded"


def test_hopper_keeps_it_where_its_kernel_serves_the_part_of_each_device(tmp_path):
    """Of 128 inputs of o four devices have 32."""
    model = write(tmp_path / "model")
    assert packing_on(H200, model, "fp8", tensor_parallel_size=2) == ROWS
    assert packing_on(H200, model, "fp8", tensor_parallel_size=4) == DENSE
    assert packing_on(TPU7X, model, "fp8", tensor_parallel_size=4) == ROWS
    assert packing_on(H200, "llama-3-8b", "fp8", load_format="dummy", tensor_parallel_size=4) == ROWS
