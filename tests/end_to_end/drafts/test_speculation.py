"""Drafts change no token, text, log-probability or finish reason."""

from unittest.mock import patch

import numpy as np
import pytest

from jaxserve import SamplingParams
from jaxserve.core.errors import RequestError
from jaxserve.core.options.speculative_config import SpeculativeConfig
from tests.end_to_end.engine.test_overlap_and_multi_step import FEATURES, pairwise, run
from tests.support.drafting import always, counted, decoys
from tests.support.golden_data import goldens
from tests.support.tiny_engines import SMALL, driven, rescheduled, submit, tiny_engine

DRAFTS = SpeculativeConfig(method="ngram", num_speculative_tokens=3, prompt_lookup_min=1, prompt_lookup_max=3)
ROWS = pairwise(FEATURES | {"repetition_penalty": (1.0, 1.3)})
PAGE = 16


def drafting(family, **options):
    return always(tiny_engine(family, speculative_config=DRAFTS, **options))


def requests(family):
    """Prompts that repeat themselves, with every pair of features."""
    prompts = [(goldens(family)[i % 3].prompt[: 4 + i] * 3)[: 20 + i] for i in range(len(ROWS))]
    return prompts, [SamplingParams(max_tokens=12 + 5 * (i % 4), seed=i, **row) for i, row in enumerate(ROWS)]


@pytest.mark.parametrize(
    ("family", "options", "ways"),
    [("llama3", {}, [(1, False), (5, True)]), ("gemma3", {"tensor_parallel_size": 2}, [(5, True)])],
)
def test_every_pair_of_features_gives_the_same_text(family, options, ways):
    prompts, params = requests(family)
    expected, logprobs, _ = run(tiny_engine(family), prompts, params, 1, is_overlapped=False)
    llm = drafting(family, **options)
    for num_rounds, is_overlapped in ways:
        with counted(llm) as seen:
            outputs, found, _ = run(llm, prompts, params, num_rounds, is_overlapped)
        assert outputs == expected, (num_rounds, is_overlapped)
        np.testing.assert_allclose(found, logprobs, atol=2e-5)  # two devices add in another order
        proposed, accepted = np.sum(seen, axis=0)
        assert 10 < accepted < proposed
    for prompt, param in list(zip(prompts, params, strict=True))[::8]:
        (alone,), _, _ = run(llm, [prompt], param, 16, is_overlapped=True)
        assert alone == expected[prompts.index(prompt)]


def test_trees_of_which_every_accepted_draft_must_be_moved_give_the_same_text():
    """34 drafts: more nodes than a word of the trees' bits has."""
    prompts, params = requests("gemma3")
    expected, logprobs, _ = run(tiny_engine("gemma3"), prompts, params, 1, is_overlapped=False)
    trees = SpeculativeConfig(method="ngram", num_speculative_tokens=34, prompt_lookup_min=1)
    with decoys():
        llm = always(tiny_engine("gemma3", speculative_config=trees))
    with counted(llm) as seen:
        outputs, found, _ = run(llm, prompts, params, 5, is_overlapped=True)
    assert outputs == expected
    np.testing.assert_allclose(found, logprobs, atol=1e-5)
    proposed, accepted = np.sum(seen, axis=0)
    assert 10 < accepted < proposed / 2


def test_control_paths_that_are_not_moved_give_other_texts():
    prompts, params = requests("llama3")
    expected, _, _ = run(tiny_engine("llama3"), prompts, params, 1, is_overlapped=False)
    trees = SpeculativeConfig(method="ngram", num_speculative_tokens=10, prompt_lookup_min=1)
    module = "jaxserve.runner.step.verify_step.compact_path"
    with decoys(), patch(module, lambda mesh, layout, kv, slots, nodes, num_kept: kv):
        llm = always(tiny_engine("llama3", speculative_config=trees))
        outputs, _, _ = run(llm, prompts, params, 5, is_overlapped=True)
    assert outputs != expected


@pytest.mark.parametrize("family", ["llama3", "gemma3"])
def test_preemption_chunks_and_cached_prefixes_change_nothing(family):
    """The history of a cached prefix is set by the host; recomputed tokens are recorded again."""
    prompts = [golden.prompt * 2 for golden in goldens(family)] * 2
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
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


def test_synthetic_acceptance_is_that_of_the_option():
    """0.7 accepts 0.7 + 0.49 + 0.343 of three drafts on average, and each pass has drafts."""
    options = {"method": "ngram", "num_speculative_tokens": 3, "synthetic_acceptance": 0.7}
    llm = always(tiny_engine("llama3", speculative_config=SpeculativeConfig(**options)))
    prompts = [golden.prompt for golden in goldens("llama3")] * 2
    params = [SamplingParams(seed=i, max_tokens=90, ignore_eos=True) for i in range(len(prompts))]
    with counted(llm) as seen:
        llm.generate(prompts, params, use_tqdm=False)
    proposed, accepted = np.sum(seen, axis=0)
    assert proposed > 3 * 20 * len(prompts)
    assert abs(accepted / (proposed / 3) - 1.533) < 0.25  # 2.5 standard errors


def test_a_request_may_do_without_drafts():
    llm, prompt = drafting("llama3"), goldens("llama3")[0].prompt * 2
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, speculation=False)
    with counted(llm) as seen:
        (output,) = llm.generate([prompt], params, use_tqdm=False)
    assert not np.sum(seen)
    (plain,) = tiny_engine("llama3").generate(
        [prompt], SamplingParams(**vars(params) | {"speculation": None}), use_tqdm=False
    )
    assert output.outputs[0].token_ids == plain.outputs[0].token_ids
    with pytest.raises(RequestError, match="speculation=True: this engine was built without speculative_config"):
        tiny_engine("llama3").generate([prompt], SamplingParams(speculation=True), use_tqdm=False)


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
