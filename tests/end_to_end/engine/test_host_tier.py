"""Sequences whose pages are swapped to host memory and back have the same outputs."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from jaxserve import LLM, SamplingParams
from jaxserve.core.device_ops import PageLoad, PageSave
from jaxserve.runner.host_pages import TRANSFER_PAGES
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import SIZES, tiny_engine

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
FAMILY, NUM_PAGES = "gemma3", 26  # with windows; too few pages for two sequences
HOST_BYTES = 2**24


@pytest.fixture(scope="module")
def llm():
    sizes = SIZES | {"num_pages": NUM_PAGES, "max_num_seqs": 4, "max_chunk_tokens": 8}
    llm = LLM(str(checkpoint(FAMILY)), **sizes, host_kv_cache_bytes=HOST_BYTES)
    costs = llm.parts.engine.scheduler.state.swap_cost
    assert costs.page_s > 0
    costs.page_s = 0.0  # a tiny model recomputes a page faster than a copy
    return llm


def generate(llm, prompts, params=GREEDY):
    return [output.outputs[0].token_ids for output in llm.generate(prompts, params, use_tqdm=False)]


def test_preempted_sequences_get_their_pages_back(llm):
    prompts = [np.random.default_rng(i).integers(1, 90, 5 + i).tolist() for i in range(6)]
    long = replace(GREEDY, max_tokens=100)
    llm.reset_prefix_cache()
    before = llm.stats
    assert generate(llm, prompts, long) == generate(tiny_engine(FAMILY), prompts, long)
    after = llm.stats
    assert after.num_preemptions > before.num_preemptions
    assert after.num_saved > before.num_saved
    assert after.num_loaded > before.num_loaded
    assert after.num_pages_free + after.num_pages_cached == llm.parts.sizes.num_pages - 1


def test_evicted_prefixes_are_found_again(llm):
    prompts = [golden.prompt for golden in goldens(FAMILY)]
    llm.reset_prefix_cache()
    assert llm.stats.num_pages_host == 0
    others = [np.random.default_rng(i).integers(1, 90, 60).tolist() for i in range(8)]
    first = generate(llm, prompts)
    generate(llm, others)  # evicts all pages of the first from the pool
    before = llm.stats
    outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
    assert [output.outputs[0].token_ids for output in outputs] == first
    assert [output.num_cached_tokens for output in outputs] == [(len(p) - 1) // 16 * 16 for p in prompts]
    assert llm.stats.num_loaded > before.num_loaded


def test_what_is_dearer_to_load_is_computed_again(llm, monkeypatch):
    prompts = [golden.prompt for golden in goldens(FAMILY)]
    monkeypatch.setattr(llm.parts.engine.scheduler.state.swap_cost, "page_s", 1e9)
    before = llm.stats
    assert generate(llm, prompts * 3) == [golden.greedy for golden in goldens(FAMILY)] * 3
    assert llm.stats.num_loaded == before.num_loaded


@pytest.mark.parametrize(("size", "count"), [(1, 1), (1, TRANSFER_PAGES), (1, TRANSFER_PAGES + 3), (2, 5)])
def test_copies_there_and_back_are_exact(size, count):
    options = {"tensor_parallel_size": size, "enable_prefix_caching": True}
    llm = tiny_engine("llama3", host_kv_cache_bytes=HOST_BYTES, **options)
    runner, draw = llm.parts.runner, np.random.default_rng(count)
    pool = np.array(runner._state.kv.pool)
    content = draw.normal(size=pool.shape).astype(pool.dtype)
    kv = runner._state.kv
    runner._state = runner._state.replace(kv=kv.replace(pool=jax.device_put(content, kv.pool.sharding)))
    before = np.array(runner._state.kv.pool)
    ids = draw.permutation(np.arange(1, pool.shape[1]))
    there, back = ids[:count], ids[count : 2 * count]
    host = draw.permutation(np.arange(1, llm.parts.sizes.num_host_pages + 1))[:count]
    runner._state = runner._ops.make(runner._state, [PageSave(there, host), PageLoad(host, back)])
    after = np.array(runner._state.kv.pool)
    assert np.array_equal(after[:, back], before[:, there])
    rest = np.setdiff1d(np.arange(1, pool.shape[1]), back)
    assert np.array_equal(after[:, rest], before[:, rest])
