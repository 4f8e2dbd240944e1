"""Unsupported forms of quantization are refused by name; the method may be declared outside config.json."""

import json

import numpy as np
import pytest

from checkpoints.errors import CheckpointError
from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.quantized.quant_config import read_scheme
from checkpoints.sources import resolve
from tests.checkpoints import safetensors_builder as build

FP8 = {"quant_method": "fp8", "weight_block_size": [16, 8]}


def compressed(strategy, **more):
    weights = {"type": "float", "num_bits": 8, "strategy": strategy, **more}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


def groups(*weights):
    return {"config_groups": {f"group_{i}": {"weights": each} for i, each in enumerate(weights)}}


INT4, INT8 = ({"type": "int", "num_bits": bits, "strategy": "channel"} for bits in (4, 8))
REFUSED = {
    "unknown": ({"quant_method": "hqq"}, "quant_method 'hqq' is not supported; jaxserve reads 'fp8'"),
    "no name": ({"bits": 4}, "quant_method None"),
    "a list": ({"quant_method": ["gptq"]}, "quant_method ['gptq']"),
    "gptq, five bits": ({"quant_method": "gptq", "bits": 5}, "GPTQ weights of 5 bits"),
    "gptq, no bits": ({"quant_method": "gptq"}, "GPTQ weights of None bits"),
    "gptq, marlin": ({"quant_method": "gptq", "bits": 4, "is_marlin_format": True}, "checkpoint_format 'marlin'"),
    "gptq, other form": ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "bitblas"}, "'bitblas'"),
    "gptq, a list of forms": ({"quant_method": "gptq", "bits": 4, "checkpoint_format": ["gptq"]}, "['gptq']"),
    "gptq, a rule's bits": ({"quant_method": "gptq", "bits": 4, "dynamic": {"+:a": {"bits": [8]}}}, "of [8] bits"),
    "gptq, a list of rules": ({"quant_method": "gptq", "bits": 5, "dynamic": [1]}, "GPTQ weights of 5 bits"),
    "gptq, a group of text": (
        {"quant_method": "gptq", "bits": 4, "group_size": "64"},
        "group_size must be a number of",
    ),
    "awq, no group": ({"quant_method": "awq", "bits": 4, "group_size": 0}, "group_size must be a number"),
    "integers, no group": (groups({"num_bits": 4, "strategy": "group"}), "must have a group_size"),
    "awq, three bits": ({"quant_method": "awq", "bits": 3}, "AWQ weights of 3 bits"),
    "awq, other form": ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "the AWQ version 'gemv'"),
    "bitsandbytes": ({"quant_method": "bitsandbytes"}, "without load_in_4bit or load_in_8bit"),
    "stored as text": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_storage": "str"},
        "the bnb_4bit_quant_storage 'str'",
    ),
    "strategy": (compressed("group", group_size=32), "the strategy 'group' of FP8"),
    "strategy of integers": (compressed("block", type="int"), "the strategy 'block' of integers"),
    "bits": (compressed("channel", num_bits=6), "the type 'float' of 6 bits"),
    "zero points": (compressed("channel", symmetric=False), "the type 'float' of 8 bits"),
    "sparse": (compressed("tensor") | {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity (sparse"),
    "rotated": (compressed("tensor") | {"transform_config": {"config_groups": {"u": {}}}}, "transform_config"),
    "no groups": ({"quant_method": "compressed-tensors"}, "config_groups must name at least one group"),
    "a group of nothing": ({"config_groups": {"a": 1}}, "config_groups.a must describe how"),
    "not an object": ("fp8", "must be an object"),
    "block size": (FP8 | {"weight_block_size": [128]}, "weight_block_size must be two sizes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_forms_are_refused_by_name(name, tmp_path):
    quantization, fault = REFUSED[name]
    build.write(tmp_path / "model.safetensors", {"w": np.zeros((2, 2), np.float32)})
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": quantization}))
    with pytest.raises(CheckpointError) as refusal:
        open_checkpoint(resolve(str(tmp_path)))
    assert str(refusal.value).startswith(f"{tmp_path / 'config.json'}: quantization_config")
    assert fault in str(refusal.value)


def test_groups_of_different_kinds_may_be_in_one_model(tmp_path):
    fp8 = {"type": "float", "num_bits": 8, "strategy": "channel"}
    fp4 = {"type": "float", "num_bits": 4, "strategy": "group"}
    scheme = read_scheme({"compression_config": groups(fp8, INT4, fp4, INT8, INT4)}, tmp_path)
    assert len(scheme.schemes) == 4


@pytest.mark.parametrize(
    ("name", "values", "fault"),
    [
        ("quantize_config.json", {"bits": 4, "group_size": 128}, None),
        ("quant_config.json", {"w_bit": 4, "version": "GEMM"}, None),
        ("quant_config.json", {"w_bit": 4, "version": "GEMV"}, "the AWQ version 'gemv'"),
        ("hf_quant_config.json", {"quantization": {}}, "quant_method 'modelopt'"),
    ],
)
def test_the_method_may_be_declared_outside_config_json(name, values, fault, tmp_path):
    (tmp_path / name).write_text(json.dumps(values))
    if fault is None:
        assert read_scheme({}, tmp_path) is not None
        return
    with pytest.raises(CheckpointError) as refusal:
        read_scheme({}, tmp_path)
    assert str(refusal.value).startswith(str(tmp_path / name))
    assert fault in str(refusal.value)
