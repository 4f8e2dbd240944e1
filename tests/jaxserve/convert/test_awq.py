"""AWQ gives large inputs finer steps where that loses less, and changes no model before its weights are coded."""

import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest

from checkpoints.quantized.forms import written_form
from checkpoints.sources import resolve
from jaxserve import pure
from jaxserve.convert.awq_scales import ALPHAS, AwqScales, FoldedHessians, best_scales
from jaxserve.convert.convert_model import ConversionTarget, convert
from jaxserve.convert.layer_sums import LayerSums
from jaxserve.functional.layer_inputs import PRODUCTS, layer_inputs
from tests.jaxserve.convert.test_quantize import model
from tests.support.processes.command_line import check_mistake_here

RANDOM = np.random.default_rng(0)
TEXTS = np.random.default_rng(1).integers(3, 90, (16, 24)).astype(np.int32)
LARGE = (5, 40)
NORM, UP = "model.layers.1.input_layernorm.weight", "model.layers.1.mlp.up_proj.weight"


def test_large_inputs_have_larger_weights_than_others():
    weight, inputs = RANDOM.normal(size=(48, 64)).astype(np.float32), RANDOM.normal(size=(400, 64))
    inputs[:, LARGE] *= 30
    scales = best_scales(weight, (inputs.T @ inputs).astype(np.float32), 32)
    assert scales[[*LARGE]].min() > 2 * np.delete(scales, LARGE).max()
    assert np.exp(np.log(scales).mean()) == pytest.approx(1)


def test_inputs_of_one_size_are_left_alone_and_those_that_are_zero_do_no_harm():
    weight, hessian = RANDOM.normal(size=(8, 32)).astype(np.float32), np.eye(32, dtype=np.float32)
    np.testing.assert_array_equal(best_scales(weight, hessian, 32), np.ones(32))
    hessian[3] = 0
    assert np.isfinite(best_scales(weight, hessian, 32)).all()
    assert ALPHAS[0] == 0


def test_a_few_rows_at_a_time_have_the_scales_of_the_whole(monkeypatch):
    weight, inputs = RANDOM.normal(size=(1000, 64)).astype(np.float32), RANDOM.normal(size=(400, 64))
    inputs[:, LARGE] *= 30
    hessian = (inputs.T @ inputs).astype(np.float32)
    expected = best_scales(weight, hessian, 32)
    monkeypatch.setattr(written_form, "PIECE_BYTES", 32 * 64 * 4)
    tracemalloc.start()
    found = best_scales(weight, hessian, 32)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(found, expected)
    assert peak < weight.nbytes, "a whole matrix at once takes 5 times as much as it has"


def converted(source, folder, scheme, scales=None):
    target = ConversionTarget(folder, "safetensors", "float32", 10**9, scheme=scheme)
    sums = None if scales is None else FoldedHessians(scales)
    convert(resolve(str(source)), target, lambda done, total: None, scales, sums)
    return pure.load(str(folder), dtype="float32", quantization="dense")


def logits_of(loaded):
    hidden, _ = pure.forward(loaded.settings, loaded.params, jnp.asarray(TEXTS[:2]))
    return np.asarray(pure.logits(loaded.settings, loaded.params, hidden))


@pytest.mark.thorough
def test_less_of_a_layers_products_is_lost_than_by_rounding(tmp_path):
    """Two inputs of the attention of a layer, and two of its down projection, are much larger than the others."""
    norm = np.ones(128, np.float32)
    norm[[*LARGE]] = 30
    up = model(tmp_path / "dense")[UP].copy()
    up[[*LARGE]] *= 30
    model(tmp_path / "model", **{NORM: norm, UP: up})
    original = pure.load(str(tmp_path / "model"), dtype="float32")
    inputs = list(layer_inputs(original.settings, original.params, TEXTS, PRODUCTS))[1]

    def of_layer(loaded, name):
        (layers,) = loaded.params["layers"].values()
        return np.asarray(layers[name][1])

    def scales():
        return AwqScales(LayerSums(lambda: original, TEXTS, PRODUCTS), 64)

    folded = converted(tmp_path / "model", tmp_path / "folded", None, scales())
    expected, found = logits_of(original), logits_of(folded)
    assert np.linalg.norm(found - expected) < 1e-4 * np.linalg.norm(expected)
    awq = converted(tmp_path / "model", tmp_path / "awq", "awq-g64", scales())
    rounded = converted(tmp_path / "model", tmp_path / "rounded", "int4-g64")
    for name in ("qkv", "down"):
        weight, hessian = of_layer(original, name), np.asarray(inputs[name])
        factors = np.mean(of_layer(folded, name) / weight, axis=tuple(range(weight.ndim - 1)))
        assert factors[[*LARGE]].min() > 1.5 * np.median(factors)

        def lost(values, weight=weight, hessian=hessian):
            error = (values - weight).reshape(-1, weight.shape[-1])
            return float(np.sum((error @ hessian) * error))

        assert lost(of_layer(awq, name) / factors) < 0.7 * lost(of_layer(rounded, name))


def test_it_needs_a_text(tmp_path, capsys):
    argv = ["quantize", "model", str(tmp_path / "out"), "--scheme", "awq-g64"]
    check_mistake_here(argv, "--scheme awq-g64 needs --calibration FILE", capsys)
