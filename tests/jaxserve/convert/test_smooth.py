"""Smoothing changes no model before its weights are coded, and brings coded ones nearer to it."""

import gc
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checkpoints.errors import CheckpointError
from checkpoints.mapping.parts import Part
from checkpoints.sources import resolve
from jaxserve import pure
from jaxserve.convert.convert_model import ConversionTarget, convert
from jaxserve.convert.layer_sums import LayerSums
from jaxserve.convert.smooth import Smoothing, powers_of_two
from jaxserve.functional import layer_inputs as module
from jaxserve.functional.layer_inputs import LARGEST, PRODUCTS, Keep, layer_inputs
from jaxserve.models.rms_norm import rms_norm
from tests.jaxserve.convert.test_quantize import model
from tests.support.golden_data import checkpoint
from tests.support.processes.command_line import check_mistake_here

TOKENS = np.random.default_rng(0).integers(3, 90, (2, 12)).astype(np.int32)
OUTLIER, NORM = 5, "model.layers.1.input_layernorm.weight"


class Whole(Keep):
    """All inputs, of one batch."""

    def of(self, inputs):
        return inputs


WHOLE = Whole()


def ignore(done, total):
    pass


def largest_of(model):
    return LayerSums(lambda: model, TOKENS, LARGEST)


def logits_of(loaded):
    hidden, _ = pure.forward(loaded.settings, loaded.params, jnp.asarray(TOKENS))
    return pure.logits(loaded.settings, loaded.params, hidden)


def load(folder, **options):
    return pure.load(str(folder), dtype="float32", quantization="dense", **options)


@pytest.mark.thinned(1)
@pytest.mark.parametrize("family", ["llama3", "gemma3", "qwen3"])
def test_inputs_are_those_of_the_forward_pass(family):
    loaded = load(checkpoint(family))
    config, params = loaded.config, loaded.params
    layers = tuple(range(config.num_layers))
    _, taps = pure.forward(loaded.settings, params, jnp.asarray(TOKENS), layers=layers)
    everything, largest, products = (
        list(layer_inputs(loaded.settings, params, TOKENS, keep)) for keep in (WHOLE, LARGEST, PRODUCTS)
    )
    for row, state, kept, most, sums in zip(config.layer_table, taps, everything, largest, products, strict=True):
        assert kept.keys() == most.keys() == {"qkv", "o", "gate_up", "down"}
        norm = params["layers"][config.stacks[row.stack].name]["attn_norm"][row.index_in_stack]
        expected = rms_norm(state.reshape(-1, state.shape[-1]), norm, config.norm_eps)
        np.testing.assert_allclose(kept["qkv"], expected, atol=1e-5)
        for name, inputs in kept.items():
            np.testing.assert_array_equal(jnp.abs(inputs).max(axis=0), most[name])
            np.testing.assert_allclose(inputs.T @ inputs, sums[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("keep", [LARGEST, PRODUCTS], ids=["largest", "products"])
def test_batches_add_to_what_is_kept_in_its_memory(keep, monkeypatch):
    loaded, kept = pure.load(str(checkpoint("llama3")), dtype="float32"), []
    whole = list(layer_inputs(loaded.settings, loaded.params, TOKENS, keep))
    run_layer = module._run_layer

    def run(*args):
        x, found = run_layer(*args)
        kept.append(found)
        return x, found

    monkeypatch.setattr(module, "_run_layer", run)
    monkeypatch.setattr(module, "BATCH", 1)
    found = list(layer_inputs(loaded.settings, loaded.params, TOKENS, keep))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), found, whole)
    assert len(kept) == 2 * loaded.settings.config.num_layers
    assert [{array.is_deleted() for array in one.values()} for one in kept] == [{True}, {False}] * (len(kept) // 2)


def test_only_the_layers_stay_in_memory():
    shape = load(checkpoint("llama3")).params["embed"].shape

    def num_embeddings():
        gc.collect()
        return sum(array.shape == shape for array in jax.live_arrays())

    before, loaded = num_embeddings(), list[int]()

    def counted():
        model = load(checkpoint("llama3"))
        loaded.append(num_embeddings())
        return model

    sums = LayerSums(counted, TOKENS, PRODUCTS)
    sums.of(Part("layer-0", {}), "qkv")
    assert loaded == [before + 1]
    assert num_embeddings() == before


@pytest.mark.thinned(1)
@pytest.mark.parametrize("family", ["llama3", "gemma3", "qwen2"])
def test_folding_is_exact(family, tmp_path):
    """Also in bfloat16, but for the norms of Gemma: those are written in float32."""
    original = load(checkpoint(family))
    smoothing = Smoothing(largest_of(original), 0.5)
    target = ConversionTarget(tmp_path / "smooth", "safetensors", "float32", 10**9)
    assert convert(resolve(str(checkpoint(family))), target, ignore, smoothing)
    smooth = load(tmp_path / "smooth")
    assert float(jnp.max(jnp.abs(logits_of(smooth) - logits_of(original)))) < 1e-4
    (before, *_), (after, *_) = (one.params["layers"].values() for one in (original, smooth))
    ratio = np.asarray(after["attn_norm"][0] / before["attn_norm"][0])
    assert len(np.unique(ratio)) > 1, "something was moved"
    np.testing.assert_allclose(np.log2(ratio), np.rint(np.log2(ratio)), atol=1e-6)


def test_outlying_channels_cost_less(tmp_path):
    """A norm that makes one channel 60 times as large, and weights that make it as small again."""
    tensors = model(tmp_path / "plain")
    names = [f"model.layers.1.self_attn.{x}_proj.weight" for x in "qkv"]
    changed = {name: tensors[name].copy() for name in (NORM, *names)}
    changed[NORM][OUTLIER] *= 60
    for name in names:
        changed[name][:, OUTLIER] /= 60
    model(tmp_path / "model", **changed)
    original = load(tmp_path / "model")
    errors = list[float]()
    for smoothing in (None, Smoothing(largest_of(original), 0.5)):
        folder = tmp_path / f"out{len(errors)}"
        target = ConversionTarget(folder, "safetensors", "float32", 10**9, scheme="w8a8")
        convert(resolve(str(tmp_path / "model")), target, ignore, smoothing)
        coded = pure.load(str(folder), dtype="float32", quantization="packed")
        seen = list(layer_inputs(original.settings, original.params, TOKENS, WHOLE))[1]["qkv"]
        errors.append(_error_of_product(original, coded, seen, smoothing))
    assert errors[1] < 0.3 * errors[0]


def _error_of_product(original, coded, inputs, smoothing):
    """Of the projections of one layer, whose inputs the smoothed norm has scaled."""
    row = original.config.layer_table[1]
    name = original.config.stacks[row.stack].name
    of_layer, packed = (one.params["layers"][name] for one in (original, coded))
    weight = np.asarray(of_layer["qkv"][row.index_in_stack], np.float32)
    scale = np.asarray(of_layer["attn_norm"][row.index_in_stack] / packed["attn_norm"][row.index_in_stack])
    x = np.asarray(inputs) / scale
    step = np.abs(x).max(axis=1, keepdims=True) / 127
    leaf = packed["qkv"]
    codes, scales = (np.asarray(part[row.index_in_stack], np.float32) for part in (leaf.codes, leaf.scales))
    decoded = codes * scales[..., None]
    found = np.einsum("ti,kri->tkr", np.rint(x / step) * step, decoded)
    expected = np.einsum("ti,kri->tkr", np.asarray(inputs), weight)
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def test_channels_without_values_stay_as_they_are():
    found = powers_of_two(np.float32([0, 8, 8, 1]), np.float32([1, 0, 0.5, 1]), 0.5)
    np.testing.assert_array_equal(found, [1, 1, 4, 1])


def test_a_folder_goes_on_with_its_smoothing_only(tmp_path):
    original = load(checkpoint("llama3"))
    target = ConversionTarget(tmp_path, "safetensors", "auto", 10**9, scheme="w8a8")
    smoothing = Smoothing(largest_of(original), 0.5)
    source = resolve(str(checkpoint("llama3")))
    convert(source, target, ignore, smoothing)
    with pytest.raises(CheckpointError, match=r"different conversion \(different calibration\)"):
        convert(source, target, ignore, replace(smoothing, alpha=0.6))


def test_mistakes_are_named(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("a text")
    given = ["quantize", str(checkpoint("llama3")), str(tmp_path / "out"), "--quiet", "--scheme"]
    for options, message in (
        (["int8", "--calibration", str(text)], "--calibration has no use with --scheme int8"),
        (["gptq-g64"], "--scheme gptq-g64 needs --calibration FILE"),
        (["w8a8", "--smooth", "0.5"], "--smooth needs --scheme w8a8 and --calibration FILE"),
        (["w8a8", "--calibration", str(text), "--smooth", "2"], "must be a number from 0 to 1"),
        (["w8a8", "--calibration", str(text)], "has no tokenizer, which --calibration needs"),
    ):
        check_mistake_here([*given, *options], message, capsys)
