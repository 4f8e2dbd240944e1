"""Engines of files with outliers hold what the file has, and give the tokens of a naive loop."""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from checkpoints.sources import resolve
from jaxserve import LLM, pure
from jaxserve.cli import inspect, plan
from jaxserve.convert.convert_model import ConversionTarget, convert
from jaxserve.convert.layer_sums import LayerSums
from jaxserve.core.errors import RequestError
from jaxserve.core.hardware.mesh import device_bytes
from jaxserve.functional.layer_inputs import LARGEST
from jaxserve.runner.programs.programs import Programs
from jaxserve.runner.programs.slot_programs import set_masks
from pallas_kernels.qtensor import SCHEMES
from tests.end_to_end.packed.packed_weights import decoded, greedy_texts, is_packed, naive
from tests.support.drafting import always, counted
from tests.support.golden_data import checkpoint
from tests.support.tiny_engines import SMALL, flags_of

FAMILY, COUNT, USED = "llama3", 4, 3
OPTIONS = SMALL | {"skip_tokenizer_init": True}
TOKENS = np.random.default_rng(0).integers(3, 90, (2, 12)).astype(np.int32)


def ignore(done, total):
    pass


class Scaled(LayerSums):
    """So that three inputs of each matrix are above the threshold."""

    def of(self, part, name):
        values = super().of(part, name)
        return values * 6 / np.sort(values)[-USED - 1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with three outliers, and a place for a fourth, in each matrix."""
    path = tmp_path_factory.mktemp("outliers") / "model"
    model = pure.load(str(checkpoint(FAMILY)), dtype="float32")
    sums = Scaled(lambda: model, TOKENS, LARGEST)
    target = ConversionTarget(path, "safetensors", "float32", 10**9, scheme="w8a8", num_outliers=COUNT)
    convert(resolve(str(checkpoint(FAMILY))), target, ignore, sums=sums)
    return path


@pytest.fixture(scope="module")
def llm(folder):
    return LLM(str(folder), **OPTIONS)


def layers(params):
    (stack,) = params["layers"].values()
    return {name: leaf for name, leaf in stack.items() if is_packed(leaf)}


@pytest.mark.thorough
@pytest.mark.parametrize("options", [{}, {"tensor_parallel_size": 2}, {"batch_invariant": True}], ids=str)
def test_tokens_are_those_of_a_naive_loop(folder, options):
    llm = LLM(str(folder), **OPTIONS, **options)
    params = llm.parts.runner.params
    assert {leaf.scheme for leaf in layers(params).values()} == {SCHEMES["w8a8"].with_outliers(COUNT)}
    assert greedy_texts(llm, FAMILY) == naive(llm, params, FAMILY)


@pytest.mark.thorough
def test_speculation_changes_no_token(folder, llm):
    options = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}, "batch_invariant": True}
    drafting = always(LLM(str(folder), **OPTIONS, **options))
    with counted(drafting) as seen:
        assert greedy_texts(drafting, FAMILY) == greedy_texts(llm, FAMILY)
    assert np.sum(seen, axis=0)[1] > 0, "drafts are accepted"


def test_the_device_has_what_the_file_has(folder, llm):
    stored, found = load_file(folder / "model.safetensors"), layers(llm.parts.runner.params)
    for layer, codes in enumerate(found["down"].codes):
        name = f"model.layers.{layer}.mlp.down_proj.weight"
        np.testing.assert_array_equal(codes, stored[name])
        np.testing.assert_array_equal(found["down"].outliers[layer], stored[f"{name}_outliers"])
        columns = stored[f"{name}_outlier_columns"]
        np.testing.assert_array_equal(found["down"].columns[layer], columns)
        assert (columns < codes.shape[1]).sum() == USED
    of_file = sum(tensor.nbytes for name, tensor in stored.items() if "proj" in name)
    assert abs(device_bytes(found) / of_file - 1) < 0.02


def test_decoded_weights_have_the_columns_of_the_file(folder, llm):
    original, dense = (
        pure.load(str(path), dtype="float32", quantization="dense") for path in (checkpoint(FAMILY), folder)
    )
    found, codes = layers(llm.parts.runner.params)["down"], decoded(layers(llm.parts.runner.params))["down"]
    (of_original,), (of_file,) = (model.params["layers"].values() for model in (original, dense))
    for layer, columns in enumerate(np.asarray(found.columns)):
        is_apart = np.isin(np.arange(codes[layer].shape[1]), columns)
        np.testing.assert_array_equal(of_file["down"][layer][:, is_apart], of_original["down"][layer][:, is_apart])
        np.testing.assert_array_equal(of_file["down"][layer][:, ~is_apart], codes[layer][:, ~is_apart])
        assert (of_file["down"][layer] != codes[layer]).any(), "the control"


def test_a_scheme_that_is_asked_for_has_them_with_coded_inputs_alone(folder):
    coded, wide = (pure.load(str(folder), dtype="float32", quantization=name).params for name in ("w8a8", "int8"))
    assert coded["embed"].scheme == SCHEMES["w8a8"]
    assert layers(coded)["down"].scheme.num_outliers == COUNT
    assert layers(wide)["down"].scheme == SCHEMES["int8"]
    assert layers(wide)["down"].columns is None


def test_plans_and_descriptions_know_them(folder, llm, tmp_path, monkeypatch, capsys):
    # One program stands for all, whose compilation takes seconds.
    monkeypatch.setattr(Programs, "all", lambda programs, buckets: [set_masks(programs, 4)])
    flags = flags_of({name: value for name, value in SMALL.items() if name != "enable_prefix_caching"})
    assert plan.run([str(folder), "--quiet", "--json", str(tmp_path / "plan.json"), *flags]) == 0
    planned = json.loads((tmp_path / "plan.json").read_text())["memory"]["weight_bytes"]
    assert planned == device_bytes(llm.parts.runner.params)
    capsys.readouterr()
    assert inspect.run([str(folder)]) == 0
    assert f"w8a8-o{COUNT}" in capsys.readouterr().out


@pytest.mark.thorough
def test_weights_are_replaced_by_those_with_as_many_outliers(folder):
    llm = LLM(str(folder), **OPTIONS)
    before, params = greedy_texts(llm, FAMILY), jax.tree.map(np.array, llm.parts.runner.params)
    (name,) = params["layers"]
    plain = pure.load(str(checkpoint(FAMILY)), dtype="float32", quantization="w8a8").params["layers"]
    with pytest.raises(RequestError, match=r"down is w8a8 \(float32\) instead of w8a8-o4 \(float32\)"):
        llm.update_weights(params | {"layers": plain})
    other = jax.tree.map(np.copy, params)
    other["layers"][name]["down"].outliers[:] = 3
    llm.update_weights(other)
    assert greedy_texts(llm, FAMILY) != before
    llm.update_weights(params)
    assert greedy_texts(llm, FAMILY) == before
