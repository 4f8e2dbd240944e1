"""Rows with adapters compute what merged weights do on several devices, with drafts, and bit for bit in any batch."""

import pytest

from jaxserve import LLM
from tests.support.adapters.merged_case import GREEDY, LORA, MergedCase, logprobs_of, spied
from tests.support.tiny_engines import SMALL


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return MergedCase("llama3", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    return MergedCase("gemma3", tmp_path_factory.mktemp("gemma"))


@pytest.mark.thorough
def test_layers_of_several_kv_groups_on_four_devices(gemma):
    """The devices share one KV head of this model, whose rows of b are repeated."""
    gemma.check(gemma.llm(tensor_parallel_size=4))


@pytest.mark.thorough
def test_drafts_of_their_own_texts(llama, monkeypatch):
    config = {"method": "ngram", "num_speculative_tokens": 1, "prompt_lookup_min": 1}
    llm = LLM(llama.model, **SMALL | LORA, speculative_config=config)
    planned = spied(llm, monkeypatch)
    llama.check(llm)
    assert any(plan.bucket.is_verify and plan.has_adapters for plan in planned)


@pytest.mark.thorough
def test_bits_do_not_depend_on_the_batch(llama):
    llm = llama.llm(batch_invariant=True)
    for i, among_others in enumerate(llama.check(llm)):
        (alone,) = llm.generate([llama.prompts[i]], GREEDY, lora_request=llama.adapters[i], use_tqdm=False)
        assert logprobs_of(alone) == logprobs_of(among_others)
