"""Engines of packed weights equal naive loops, of the weights that the codes stand for or of the same packed ones."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import LLM, SamplingParams, pure
from jaxserve.core.errors import ConfigError, RequestError
from jaxserve.core.hardware.mesh import device_bytes
from pallas_kernels.qtensor import SCHEMES, QTensor
from tests.support.golden_data import checkpoint, goldens
from tests.support.naive_loop import NaiveModel
from tests.support.tiny_engines import SMALL, tiny_engine

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)


def texts(llm, family, **changes):
    prompts = [golden.prompt for golden in goldens(family)]
    return [out.outputs[0].token_ids for out in llm.generate(prompts, replace(GREEDY, **changes), use_tqdm=False)]


def is_packed(leaf):
    return isinstance(leaf, QTensor)


def decoded(params):
    """The same weights, not packed."""

    def of_layer(codes, scales):
        return codes.astype(jnp.float32) * scales[..., None]

    def dense(leaf):
        if not is_packed(leaf):
            return leaf
        if isinstance(leaf.codes, tuple):
            return tuple(map(of_layer, leaf.codes, leaf.scales))
        return of_layer(leaf.codes, leaf.scales)

    return jax.tree.map(dense, params, is_leaf=is_packed)


def naive(llm, params):
    settings = llm.parts.runner.settings.model
    return NaiveModel(settings.config, params, settings.mesh, "xla")


@pytest.mark.parametrize(
    ("family", "scheme", "options"),
    [
        ("llama3", "int8", {}),
        ("gemma3", "int8", {"tensor_parallel_size": 2, "max_chunk_tokens": 7}),
        ("qwen3", "w8a8", {"tensor_parallel_size": 2, "num_pages": 11, "max_num_seqs": 4}),
    ],
)
def test_tokens_are_those_of_a_naive_loop(family, scheme, options):
    llm = tiny_engine(family, quantization=scheme, **options)
    packed = llm.parts.runner.params
    reference = naive(llm, decoded(packed) if scheme == "int8" else packed)
    prompts = [golden.prompt for golden in goldens(family)]
    expected = [reference.greedy(prompt, GREEDY.max_tokens) for prompt in prompts]
    assert texts(llm, family) == expected


def test_speculation_and_invariance_change_no_token():
    plain = texts(tiny_engine("llama3", quantization="w8a8"), "llama3")
    drafts = {"method": "ngram", "num_speculative_tokens": 3}
    for options in ({"speculative_config": drafts}, {"batch_invariant": True}):
        assert texts(LLM(str(checkpoint("llama3")), quantization="w8a8", **SMALL, **options), "llama3") == plain


@pytest.mark.parametrize("scheme", SCHEMES)
def test_memory_is_that_of_codes_and_scales(scheme):
    llm = tiny_engine("llama3", quantization=scheme)
    params, settings = llm.parts.runner.params, llm.parts.runner.settings.model
    matrices = [leaf for leaf in jax.tree.leaves(params, is_leaf=is_packed) if is_packed(leaf)]
    assert len(matrices) == 4 + 1 + (not settings.config.is_tied)
    dense = device_bytes(tiny_engine("llama3").parts.runner.params)
    assert device_bytes(params) < 0.3 * dense, "float32 has four times the bytes"
    assert llm.parts.spec.memory.weight_bytes == device_bytes(params)


def test_logits_are_near_those_of_dense_weights():
    golden = goldens("llama3")[1]
    errors = {}
    for scheme in SCHEMES:
        llm = tiny_engine("llama3", quantization=scheme)
        found = naive(llm, llm.parts.runner.params).logits(golden.prompt)
        errors[scheme] = np.abs(found - golden.logits).max() / np.abs(golden.logits).max()
    assert 1e-4 < errors["int8"] < errors["w8a8"] < 0.1


def test_weights_are_replaced_in_their_packed_form_alone():
    llm = LLM(str(checkpoint("llama3")), quantization="int8", **SMALL)
    before, params = texts(llm, "llama3"), llm.parts.runner.params
    with pytest.raises(RequestError, match="embed/codes is missing"):
        llm.update_weights(decoded(params))
    halved = jax.tree.map(lambda leaf: leaf * 0.5 if leaf.dtype == jnp.float32 and leaf.ndim > 1 else leaf, params)
    llm.update_weights(jax.tree.map(jnp.copy, halved))
    assert texts(llm, "llama3") != before


def test_folders_of_orbax_are_neither_read_nor_written(tmp_path):
    tiny_engine("llama3").save(tmp_path / "dense")
    with pytest.raises(ConfigError, match="quantization: weights of an Orbax folder"):
        LLM(str(tmp_path / "dense"), quantization="int8", **SMALL)
    with pytest.raises(RequestError, match="quantization: coded weights cannot be saved"):
        tiny_engine("llama3", quantization="int8").save(tmp_path / "packed")


def test_the_functional_form_has_it_and_random_weights_too():
    model = pure.load(str(checkpoint("llama3")), quantization="w8a8", dtype="float32")
    assert is_packed(model.params["embed"])
    random = LLM(str(checkpoint("llama3")), load_format="dummy", quantization="w8a8", skip_tokenizer_init=True, **SMALL)
    assert len(texts(random, "llama3")[0]) == GREEDY.max_tokens
