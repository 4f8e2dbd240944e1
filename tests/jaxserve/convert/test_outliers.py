"""Models that are written with outliers have columns chosen by what was observed, and lose less than without. Codes and
configuration are those of W8A8."""

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from checkpoints.errors import CheckpointError
from checkpoints.sources import resolve
from jaxserve import pure
from jaxserve.convert.convert_model import ConversionTarget, convert
from jaxserve.functional.layer_inputs import layer_inputs
from pallas_kernels.matmul.matmul_spec import MatmulSpec
from pallas_kernels.quant_matmul.api import quant_matmul
from tests.checkpoints import safetensors_builder as build
from tests.jaxserve.convert.test_quantize import model
from tests.jaxserve.convert.test_smooth import NORM, TOKENS, WHOLE, ignore, largest_of, load
from tests.support.golden_data import checkpoint
from tests.support.processes.command_line import check_mistake_here

LAYER, OUTLIERS, COUNT = 1, (5, 17), 4
QKV = [f"model.layers.{LAYER}.self_attn.{x}_proj" for x in "qkv"]


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """(folder of a model of which two inputs of one layer are 100 times as large, the model)."""
    folder = tmp_path_factory.mktemp("planted")
    norm = model(folder / "plain")[NORM].copy()
    norm[list(OUTLIERS)] *= 100
    model(folder / "model", **{NORM: norm})
    return folder / "model", load(folder / "model")


def written(planted, folder, count, **options):
    source, original = planted
    target = ConversionTarget(folder, "safetensors", "float32", 10**9, scheme="w8a8", num_outliers=count, **options)
    convert(resolve(str(source)), target, ignore, sums=largest_of(original) if count else None)
    return folder


def test_columns_are_those_of_large_inputs_and_codes_those_of_w8a8(planted, tmp_path):
    plain, found = (
        load_file(written(planted, tmp_path / str(count), count) / "model.safetensors") for count in (0, COUNT)
    )
    original = load_file(planted[0] / "model.safetensors")
    for name, tensor in plain.items():
        np.testing.assert_array_equal(tensor, found[name])
    for name in QKV:
        num_in = plain[f"{name}.weight"].shape[1]
        np.testing.assert_array_equal(found[f"{name}.weight_outlier_columns"], [*OUTLIERS, num_in, num_in])
        expected = original[f"{name}.weight"][:, list(OUTLIERS)]
        np.testing.assert_array_equal(found[f"{name}.weight_outliers"][:, :2], expected)
    config = [(tmp_path / name / "config.json").read_text() for name in ("0", str(COUNT))]
    assert config[0] == config[1]


def test_products_lose_less(planted, tmp_path):
    _, original = planted
    seen = list(layer_inputs(original.settings, original.params, TOKENS, WHOLE))[LAYER]["qkv"]
    row = original.config.layer_table[LAYER]
    name = original.config.stacks[row.stack].name
    weight = np.asarray(original.params["layers"][name]["qkv"][row.index_in_stack], np.float64)
    expected = np.einsum("ti,kri->tkr", np.asarray(seen, np.float64), weight)
    errors = list[float]()
    for count in (0, COUNT):
        coded = pure.load(str(written(planted, tmp_path / str(count), count)), dtype="float32")
        stack = coded.params["layers"][name]["qkv"]
        found = quant_matmul(seen, stack, jnp.int32(row.index_in_stack), MatmulSpec())
        errors.append(float(np.linalg.norm(found - expected) / np.linalg.norm(expected)))
    assert errors[1] < 0.2 * errors[0]


def test_tensors_with_the_same_inputs_must_have_the_same_columns(planted, tmp_path):
    folder = written(planted, tmp_path / "out", COUNT)
    tensors = load_file(folder / "model.safetensors")
    tensors[f"{QKV[1]}.weight_outlier_columns"] = np.int32([1, 2, 3, 4])
    build.write(folder / "model.safetensors", tensors)
    with pytest.raises(CheckpointError, match=r"has other outlier columns than .*, which has the same inputs"):
        pure.load(str(folder))
    load(folder)  # decoded, each has its own columns


def test_some_inputs_are_coded(planted, tmp_path):
    num_in = planted[1].config.d_model
    with pytest.raises(
        CheckpointError, match=f"cannot be quantized: --outliers {num_in} must be less than its {num_in}"
    ):
        written(planted, tmp_path / "out", num_in)


def test_a_folder_goes_on_with_its_outliers_only(planted, tmp_path):
    folder = written(planted, tmp_path / "out", COUNT)
    with pytest.raises(CheckpointError, match=r"different conversion \(different outliers\)"):
        written(planted, folder, COUNT + 1)


def test_mistakes_are_named(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("a text")
    given = ["quantize", str(checkpoint("llama3")), str(tmp_path / "out"), "--quiet", "--scheme"]
    needs = "--outliers needs --scheme w8a8 and --calibration FILE"
    for options, message in (
        (["w8a8", "--outliers", "4"], needs),
        (["gptq-g64", "--calibration", str(text), "--outliers", "4"], needs),
        (["int8", "--outliers", "4"], needs),
        (["w8a8", "--calibration", str(text), "--outliers", "0"], "'0' must be an integer of at least 1"),
        (["w8a8", "--calibration", str(text), "--outliers", "4", "--smooth", "0.5"], "--smooth has no use with --outl"),
        (["w8a8", "--calibration", str(text), "--outliers", "4"], "has no tokenizer, which --calibration needs"),
    ):
        check_mistake_here([*given, *options], message, capsys)
