"""Rows with adapters compute what models with merged weights compute, in every way of running them."""

import jax
import numpy as np
import pytest

from jaxserve import LLM, LoRARequest, SamplingParams
from tests.support.adapters.random_adapters import merged, tiny, write_random_adapter
from tests.support.golden_data import goldens
from tests.support.tiny_engines import SMALL, tiny_engine

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=0)
LORA = {"enable_lora": True, "max_loras": 4, "max_lora_rank": 20}
KINDS = {"a4": (4, "all"), "a8": (8, "qv"), "a16": (16, "mlp"), "a20": (20, "o")}
PARTS = {"all": None, "qv": ("q", "v"), "mlp": ("gate", "up", "down"), "o": ("o",)}


class Case:
    """A model's adapters, the first of which is none, a prompt for each, and what merged weights make of them."""

    def __init__(self, family, folder):
        self.family, self.model = family, tiny(family)
        self.adapters = [None]
        for seed, (name, (rank, parts)) in enumerate(KINDS.items()):
            chosen = {} if PARTS[parts] is None else {"parts": PARTS[parts]}
            layers = {"layers": (1,)} if parts == "o" else {}
            self.adapters.append(write_random_adapter(folder / name, self.model, rank, seed, **chosen, **layers))
        self.naive = [merged(folder / f"merged-{i}", self.model, each) for i, each in enumerate(self.adapters)]
        prompt = goldens(family)[1].prompt
        self.prompts = [prompt[: 9 + i] for i in range(len(self.adapters))]
        self.expected = [n.greedy(p, GREEDY.max_tokens) for n, p in zip(self.naive, self.prompts, strict=True)]

    def check(self, llm, order=None, params=GREEDY):
        order = list(range(len(self.adapters))) if order is None else order
        loras = [self.adapters[i] for i in order]
        outs = llm.generate([self.prompts[i] for i in order], params, lora_request=loras, use_tqdm=False)
        found = [out.outputs[0].token_ids for out in outs]
        assert found == [self.expected[i] for i in order]
        return outs

    def llm(self, **options):
        return tiny_engine(self.family, **LORA | options)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return Case("llama3", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    return Case("gemma3", tmp_path_factory.mktemp("gemma"))


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


def test_layers_of_several_kv_groups_on_four_devices(gemma):
    """The devices share one KV head of this model, whose rows of b are repeated."""
    gemma.check(gemma.llm(tensor_parallel_size=4))


def test_drafts_of_their_own_texts(llama, monkeypatch):
    config = {"method": "ngram", "num_speculative_tokens": 1, "prompt_lookup_min": 1}
    llm = LLM(llama.model, **SMALL | LORA, speculative_config=config)
    planned = spied(llm, monkeypatch)
    llama.check(llm)
    assert any(plan.bucket.is_verify and plan.has_adapters for plan in planned)


def test_cached_prefixes_are_an_adapters_own(llama):
    llm = llama.llm(prefix_eviction="lru")
    prompt, params = (llama.prompts[0] * 6)[:40], SamplingParams(temperature=0, max_tokens=2)
    same_files = LoRARequest("again", llama.adapters[1].lora_path)

    def num_cached(adapter):
        (out,) = llm.generate([prompt], params, lora_request=adapter, use_tqdm=False)
        return out.num_cached_tokens

    assert [num_cached(each) for each in (*llama.adapters, same_files)] == [0] * 6
    assert min(num_cached(each) for each in (*llama.adapters, same_files)) >= 16


def test_bits_do_not_depend_on_the_batch(llama):
    llm = llama.llm(batch_invariant=True)
    for i, among_others in enumerate(llama.check(llm)):
        (alone,) = llm.generate([llama.prompts[i]], GREEDY, lora_request=llama.adapters[i], use_tqdm=False)
        assert logprobs_of(alone) == logprobs_of(among_others)


def test_rows_without_adapters_run_the_programs_of_an_engine_without(llama, monkeypatch):
    llm = llama.llm()
    planned = spied(llm, monkeypatch)
    for adapter, has_adapters in ((None, False), (llama.adapters[1], True)):
        llm.generate(llama.prompts[:1], GREEDY, lora_request=adapter, use_tqdm=False)
        assert {plan.has_adapters for plan in planned} == {has_adapters}
        planned.clear()


def spied(llm, monkeypatch):
    """The plans that are submitted from now on."""
    planned, submit = [], llm.parts.runner.submit
    monkeypatch.setattr(llm.parts.runner, "submit", lambda plan: planned.append(plan) or submit(plan))
    return planned


def logprobs_of(out):
    (sample,) = out.outputs
    return [entry[token].logprob for entry, token in zip(sample.logprobs, sample.token_ids, strict=True)]
