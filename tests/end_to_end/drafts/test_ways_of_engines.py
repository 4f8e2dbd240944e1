"""Drafts of several kinds change no token in an engine that swaps pages to host memory, or that is batch-invariant."""

import numpy as np
import pytest

from jaxserve import LLM, SamplingParams
from jaxserve.core.options.speculative_config import SpeculativeConfig
from tests.support.drafting import always, counted
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import SIZES, tiny_engine

OPTIONS = {
    "ngram": {"prompt_lookup_min": 1},
    "suffix": {},
    "draft_model": {"model": str(checkpoint("llama3"))},
    "layer_skip": {"skip_layers": [1]},
}
SAMPLES = [
    SamplingParams(temperature=temperature, seed=i, max_tokens=60, ignore_eos=True)
    for i, temperature in enumerate([0, 0.8, 0, 1.2, 0, 0.8])
]


def prompts():
    return [(golden.prompt * 3)[: 20 + 5 * i] for i, golden in enumerate(goldens("llama3") * 2)]


def speculation(method):
    return SpeculativeConfig(method=method, num_speculative_tokens=3, **OPTIONS[method])


def texts(llm):
    return [output.outputs[0].token_ids for output in llm.generate(prompts(), SAMPLES, use_tqdm=False)]


@pytest.mark.thorough
@pytest.mark.parametrize("method", OPTIONS)
def test_rows_that_come_back_from_host_memory_draft_the_same_texts(method):
    """A draft model's KV, too, lies in the pages that are swapped."""
    sizes = SIZES | {"num_pages": 13, "max_num_seqs": 4, "max_chunk_tokens": 8}
    llm = LLM(str(checkpoint("llama3")), **sizes, host_kv_cache_bytes=2**24, speculative_config=speculation(method))
    always(llm).parts.engine.scheduler.state.swap_cost.page_s = 0.0  # a tiny model recomputes a page faster
    with counted(llm) as seen:
        assert texts(llm) == texts(tiny_engine("llama3"))
    assert min(llm.stats.num_preemptions, llm.stats.num_saved, llm.stats.num_loaded) > 0
    assert np.sum(seen, axis=0)[1] > 10


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["ngram", "draft_model"])
def test_batch_invariant_rows_draft_the_same_texts(method):
    llm = always(tiny_engine("llama3", batch_invariant=True, speculative_config=speculation(method)))
    with counted(llm) as seen:
        assert texts(llm) == texts(tiny_engine("llama3", batch_invariant=True))
    assert np.sum(seen, axis=0)[1] > 10
