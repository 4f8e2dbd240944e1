"""FP8 weights read as value times scale for every layout of scales; scales that do not fit are refused."""

import json

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from checkpoints.errors import CheckpointError
from checkpoints.load import load
from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.sources import resolve
from checkpoints.tensor_names import llama_names
from tests.checkpoints import safetensors_builder as build
from tests.checkpoints.random_models import Sizes, hf_tensors, tree

FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
BLOCKS = FP8 | {"weight_block_size": [16, 8]}
FBGEMM = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}


def compressed(strategy, inputs=None, **more):
    weights = {"type": "float", "num_bits": 8, "strategy": strategy, "symmetric": True, "dynamic": False, **more}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": group}}


def decoded(code, exponent_bits, bias, nan):
    """The value of an 8-bit float by definition: sign, exponent, mantissa."""
    sign, magnitude = -1.0 if code & 128 else 1.0, code & 127
    mantissa_bits = 7 - exponent_bits
    exponent, mantissa = magnitude >> mantissa_bits, magnitude % 2**mantissa_bits
    if magnitude in nan:
        return np.nan
    if exponent_bits == 5 and magnitude == 0x7C:
        return sign * np.inf
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)


E4M3 = np.array([decoded(code, 4, 7, {0x7F}) for code in range(256)], np.float32)
E5M2 = np.array([decoded(code, 5, 15, {0x7D, 0x7E, 0x7F}) for code in range(256)], np.float32)


def open_folder(folder, tensors, quantization):
    build.write(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": quantization}))
    return open_checkpoint(resolve(str(folder)))


@pytest.mark.parametrize(("dtype", "table"), [(ml_dtypes.float8_e4m3fn, E4M3), (ml_dtypes.float8_e5m2, E5M2)])
def test_every_code_is_its_value_times_the_scale(dtype, table, tmp_path):
    codes = np.arange(256, dtype=np.uint8).reshape(16, 16)
    tensors = {"w": codes.view(dtype), "w_scale": np.array(0.3, np.float32)}
    with open_folder(tmp_path, tensors, FP8) as checkpoint:
        np.testing.assert_array_equal(checkpoint.file.read_rows("w", 0, 16), table[codes] * np.float32(0.3))


def scales_of(strategy, rng, num_rows, num_columns):
    """(scales in the file's layout, the scale of each value by plain loops)."""
    if strategy == "tensor":
        scale = rng.random((), np.float32)
        return scale, np.full((num_rows, num_columns), scale)
    if strategy == "channel":
        scale = rng.random((num_rows, 1), np.float32)
        return scale, np.array([[scale[i, 0]] * num_columns for i in range(num_rows)])
    scale = rng.random((-(-num_rows // 16), -(-num_columns // 8)), np.float32)
    return scale, np.array([[scale[i // 16, j // 8] for j in range(num_columns)] for i in range(num_rows)])


CASES = {
    "fp8, one scale": (FP8, "tensor", "_scale"),
    "fp8, one scale, other name": (FP8 | {"weight_block_size": None}, "tensor", "_scale_inv"),
    "fp8, blocks": (BLOCKS, "block", "_scale_inv"),
    "fbgemm": (FBGEMM, "channel", "_scale"),
    "compressed, one scale": (compressed("tensor"), "tensor", "_scale"),
    "compressed, no transform": (compressed("tensor") | {"transform_config": {}}, "tensor", "_scale"),
    "compressed, rows": (compressed("channel"), "channel", "_scale"),
    "compressed, rows and inputs": (compressed("channel", {"type": "float", "num_bits": 8}), "channel", "_scale"),
    "compressed, blocks": (compressed("block", block_structure=[16, 8]), "block", "_scale"),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_of_any_range_are_scaled(name, tmp_path):
    quantization, strategy, suffix = CASES[name]
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 127, (37, 21), np.uint8)  # neither size is a multiple of its block
    scale, each = scales_of(strategy, rng, 37, 21)
    tensors = {"a.weight": codes.view(ml_dtypes.float8_e4m3fn), f"a.weight{suffix}": scale}
    tensors["a.input_scale"] = np.ones((), np.float32)
    tensors["norm.weight"] = np.ones(4, np.float32)
    with open_folder(tmp_path, tensors, quantization) as checkpoint:
        assert list(checkpoint.tensors) == ["a.weight", "norm.weight"]
        assert checkpoint.config == {"model_type": "llama"}
        is_multiplied = name in (
            "fp8, one scale",
            "fp8, one scale, other name",
            "fbgemm",
            "compressed, rows and inputs",
        )
        assert checkpoint.file.row_scheme_of("a.weight") == ("fp8" if is_multiplied else None), "weights alone"
        for start, stop in [(0, 37), (5, 5), (15, 33), (36, 37)]:
            rows = checkpoint.file.read_rows("a.weight", start, stop)
            np.testing.assert_array_equal(rows, (E4M3[codes] * each)[start:stop])
            if strategy != "block":
                found, by_row = checkpoint.file.read_codes("a.weight", start, stop)
                np.testing.assert_array_equal(found.view(np.uint8), codes[start:stop])
                np.testing.assert_array_equal(by_row, each[start:stop, 0])
        assert checkpoint.file.read_rows("norm.weight", 0, 1).dtype == np.float32


@pytest.mark.parametrize(("dtype", "bad"), [(ml_dtypes.float8_e4m3fn, 0xFF), (ml_dtypes.float8_e5m2, 0x7C)])
def test_codes_that_are_no_numbers_are_not_packed(dtype, bad, tmp_path):
    codes = np.full((16, 16), 0x7B, np.uint8)
    codes[9, 3] = bad
    with open_folder(tmp_path, {"w": codes.view(dtype), "w_scale": np.ones((), np.float32)}, FP8) as checkpoint:
        assert checkpoint.file.read_fields("w", 0, 9)["codes"].shape == (9, 16)
        with pytest.raises(CheckpointError, match="w has codes that are no numbers: use quantization='dense'"):
            checkpoint.file.read_fields("w", 9, 10)


def test_a_model_loads_as_its_decoded_weights_on_four_devices(tmp_path):
    sizes = Sizes().with_repeat(2)
    rng, tensors, plain = np.random.default_rng(1), {}, {}
    for name, tensor in hf_tensors(sizes).items():
        plain[name] = tensors[name] = tensor
        if "_proj" in name:
            codes = tensor.astype(ml_dtypes.float8_e4m3fn)
            scale, each = scales_of("block", rng, *tensor.shape)
            tensors[name], tensors[f"{name}_scale_inv"] = codes, scale
            plain[name] = E4M3[codes.view(np.uint8)] * each
    expected = tree(sizes, plain)
    target = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16), expected)
    with open_folder(tmp_path, tensors, BLOCKS) as checkpoint:
        loaded = load(checkpoint, target, llama_names.rules("hf", sizes.dims))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), b.astype(a.dtype)), loaded, expected)


WEIGHT = {"w": np.zeros((32, 16), ml_dtypes.float8_e4m3fn)}
SCALES = {
    "no scale": (FP8, {}, "w has 0 scales; it needs w_scale or w_scale_inv"),
    "two scales": (FP8, {"w_scale": (), "w_scale_inv": ()}, "w has 2 scales"),
    "a scale for each row": (FP8, {"w_scale": (32, 1)}, "w_scale has the shape [32, 1]; w needs [] or [1] or [1, 1]"),
    "too few blocks": (BLOCKS, {"w_scale_inv": (1, 2)}, "w_scale_inv has the shape [1, 2]; w needs [2, 2]"),
    "blocks the wrong way": (BLOCKS, {"w_scale_inv": (4, 1)}, "has the shape [4, 1]; w needs [2, 2]"),
    "one scale for rows": (FBGEMM, {"w_scale": ()}, "w needs [32, 1] or [32]"),
}


@pytest.mark.parametrize("name", SCALES)
def test_scales_that_do_not_fit_are_refused(name, tmp_path):
    quantization, scales, fault = SCALES[name]
    tensors = WEIGHT | {name: np.ones(shape, np.float32) for name, shape in scales.items()}
    with pytest.raises(CheckpointError) as refusal:
        open_folder(tmp_path, tensors, quantization)
    assert str(refusal.value).startswith(str(tmp_path))
    assert fault in str(refusal.value)


def test_a_long_list_of_faults_says_how_many_more_there_are(tmp_path):
    with pytest.raises(CheckpointError) as refusal:
        open_folder(tmp_path, {f"w{i:02}": WEIGHT["w"] for i in range(23)}, FP8)
    first, *lines = str(refusal.value).splitlines()
    assert "23 quantized weights cannot be decoded" in first
    assert len(lines) == 21
    assert lines[-1] == "  and 3 more"


def test_integer_scales_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="w_scale has the type I32"):
        open_folder(tmp_path, WEIGHT | {"w_scale": np.ones((), np.int32)}, FP8)
