"""Rows with adapters compute what models with merged weights compute, whatever shares their batches and pages."""

import jax
import numpy as np
import pytest

from jaxserve import LoRARequest, SamplingParams
from tests.support.adapters.merged_case import GREEDY, MergedCase, logprobs_of, spied


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return MergedCase("llama3", tmp_path_factory.mktemp("llama"))


def test_mixed_ranks_in_one_batch(llama):
    """Log-probabilities to 1e-4 and tokens are those of merged weights; the adapters' texts differ (the control)."""
    for naive, prompt, out in zip(llama.naive, llama.prompts, llama.check(llama.llm()), strict=True):
        tokens = out.outputs[0].token_ids
        logits = naive.logits([*prompt, *tokens])[len(prompt) - 1 : -1]
        expected = jax.nn.log_softmax(logits)[np.arange(len(tokens)), np.array(tokens)]
        np.testing.assert_allclose(logprobs_of(out), expected, atol=1e-4)
    assert len({tuple(tokens) for tokens in llama.expected}) == len(llama.expected)


def test_more_adapters_than_places(llama):
    """Rows wait for the one place, which is taken again and again; afterwards no page is referenced."""
    llm = llama.llm(max_loras=1)
    llama.check(llm, [1, 2, 3, 0, 4, 1, 2, 3, 4, 1, 0, 4, 3])
    pool = llm.parts.engine.scheduler.state.pool
    assert pool.num_referenced == 0
    assert pool.num_cached > 0


def test_chunks_and_preemption(llama):
    llm = llama.llm(num_pages=60, max_chunk_tokens=5, max_num_seqs=4)
    llama.check(llm, [0, 1, 2, 3, 4] * 3)


@pytest.mark.thorough
def test_cached_prefixes_are_an_adapters_own(llama):
    llm = llama.llm(prefix_eviction="lru")
    prompt, params = (llama.prompts[0] * 6)[:40], SamplingParams(temperature=0, max_tokens=2)
    same_files = LoRARequest("again", llama.adapters[1].lora_path)

    def num_cached(adapter):
        (out,) = llm.generate([prompt], params, lora_request=adapter, use_tqdm=False)
        return out.num_cached_tokens

    assert [num_cached(each) for each in (*llama.adapters, same_files)] == [0] * 6
    assert min(num_cached(each) for each in (*llama.adapters, same_files)) >= 16


def test_rows_without_adapters_run_the_programs_of_an_engine_without(llama, monkeypatch):
    llm = llama.llm()
    planned = spied(llm, monkeypatch)
    for adapter, has_adapters in ((None, False), (llama.adapters[1], True)):
        llm.generate(llama.prompts[:1], GREEDY, lora_request=adapter, use_tqdm=False)
        assert {plan.has_adapters for plan in planned} == {has_adapters}
        planned.clear()
