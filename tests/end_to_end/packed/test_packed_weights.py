"""Engines of packed weights equal naive loops, of the weights that the codes stand for or of the same packed ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import LLM, pure
from jaxserve.core.errors import ConfigError, RequestError
from jaxserve.core.hardware.mesh import device_bytes
from pallas_kernels.qtensor import SCHEMES
from tests.end_to_end.packed.packed_weights import GREEDY, decoded, greedy_texts, is_packed, naive, naive_model
from tests.support.drafting import always, counted
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import SMALL, tiny_engine


@pytest.mark.thinned(1)
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
    assert greedy_texts(llm, family) == naive(llm, decoded(packed) if scheme == "int8" else packed, family)


@pytest.mark.thorough
def test_speculation_and_invariance_change_no_token():
    plain = greedy_texts(tiny_engine("llama3", quantization="w8a8"), "llama3")
    options = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}, "batch_invariant": True}
    llm = always(LLM(str(checkpoint("llama3")), quantization="w8a8", **SMALL, **options))
    with counted(llm) as seen:
        assert greedy_texts(llm, "llama3") == plain
    assert np.sum(seen, axis=0)[1] > 0, "drafts are accepted"


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
        found = naive_model(llm, llm.parts.runner.params).logits(golden.prompt)
        errors[scheme] = np.abs(found - golden.logits).max() / np.abs(golden.logits).max()
    assert 1e-4 < errors["int8"] < errors["w8a8"] < 0.1


@pytest.mark.thorough
def test_weights_are_replaced_in_their_packed_form_alone():
    llm = LLM(str(checkpoint("llama3")), quantization="int8", **SMALL)
    before, params = greedy_texts(llm, "llama3"), llm.parts.runner.params
    with pytest.raises(RequestError, match=r"embed is dense instead of int8 \(float32\)"):
        llm.update_weights(decoded(params))
    halved = jax.tree.map(lambda leaf: leaf * 0.5 if leaf.dtype == jnp.float32 and leaf.ndim > 1 else leaf, params)
    llm.update_weights(jax.tree.map(jnp.copy, halved))
    assert greedy_texts(llm, "llama3") != before


def test_dense_folders_of_orbax_are_not_coded(tmp_path):
    tiny_engine("llama3").save(tmp_path / "dense")
    with pytest.raises(
        ConfigError, match=r"quantization='int8': weights of an Orbax folder .* has float32: leave it out"
    ):
        LLM(str(tmp_path / "dense"), quantization="int8", **SMALL)


@pytest.mark.thorough
def test_the_functional_form_has_it_and_random_weights_too():
    model = pure.load(str(checkpoint("llama3")), quantization="w8a8", dtype="float32")
    assert is_packed(model.params["embed"])
    random = LLM(str(checkpoint("llama3")), load_format="dummy", quantization="w8a8", skip_tokenizer_init=True, **SMALL)
    assert len(greedy_texts(random, "llama3")[0]) == GREEDY.max_tokens
