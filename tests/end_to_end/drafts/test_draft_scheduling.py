"""Drafts change no token when requests are preempted, share prefixes, end early or must see their tokens."""

import numpy as np
import pytest

from jaxserve import SamplingParams
from tests.end_to_end.drafts.test_speculation import drafting
from tests.support.drafting import always, counted, greedy_and_sampled
from tests.support.golden_data import goldens
from tests.support.tiny_engines import SMALL, driven, rescheduled, submit, tiny_engine

PAGE = 16


@pytest.mark.thinned(1)
@pytest.mark.parametrize("family", ["llama3", "gemma3"])
def test_preemption_chunks_and_cached_prefixes_change_nothing(family):
    """The history of a cached prefix is set by the host; recomputed tokens are recorded again."""
    prompts = [golden.prompt * 2 for golden in goldens(family)] * 2
    params = greedy_and_sampled(len(prompts))
    expected = [out.outputs[0].token_ids for out in tiny_engine(family).generate(prompts, params, use_tqdm=False)]
    num_pages = 1 + drafting(family).parts.spec.programs.groups.max_sequence_pages(SMALL["max_model_len"], chunk=7)
    llm = always(rescheduled(drafting(family), "hits", num_pages=num_pages, max_chunk_tokens=7))
    for _ in range(2):
        with counted(llm) as seen:
            outputs = llm.generate(prompts, params, use_tqdm=False)
        assert [out.outputs[0].token_ids for out in outputs] == expected
        assert np.sum(seen, axis=0)[1] > 20
    assert sum(out.num_cached_tokens for out in outputs) >= PAGE
    assert (llm.stats.num_preemptions > 0) == (family == "llama3")  # windows return pages early
    llm.reset_prefix_cache()
    assert llm.stats.num_pages_free == num_pages - 1


def test_a_row_that_must_see_its_tokens_runs_beside_drafts():
    golden, params = goldens("llama3")[0], SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    words = (tuple(golden.greedy[3:5]),)

    def outputs(llm):
        fields = ({"bad_words": words}, {}, {})
        sequences = [submit(llm, golden.prompt, params, **changes) for changes in fields]
        for _ in llm.parts.engine.drain():
            pass
        return [sequence.token_ids for sequence in sequences]

    llm = drafting("llama3")
    with counted(llm) as seen:
        found = outputs(llm)
    assert found == outputs(tiny_engine("llama3"))
    assert found[0][:5] != golden.greedy[:5]
    assert np.sum(seen, axis=0)[1] > 5


@pytest.mark.thorough
def test_an_abort_in_the_middle_of_drafts_harms_nobody():
    llm, golden = drafting("gemma3"), goldens("gemma3")[1]
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    with driven(llm, 3, is_overlapped=True):
        sequences = [submit(llm, golden.prompt, params) for _ in range(2)]
        for _ in range(3):
            llm.parts.engine.step()
        llm.parts.engine.scheduler.abort(sequences[0].request.request_id)
        for _ in llm.parts.engine.drain():
            pass
    assert sequences[0].finish_reason == "abort"
    assert sequences[1].token_ids == golden.greedy
    assert llm.stats.num_pages_free == SMALL["num_pages"] - 1
