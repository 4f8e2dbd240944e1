"""Drafts of an EAGLE-3 layer change no token, whatever else an engine does."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from jaxserve import LLM, SamplingParams
from jaxserve.core.errors import ConfigError
from tests.support.draft_laws import check_every_pair_of_features
from tests.support.drafting import always, counted
from tests.support.eagle_drafts import LONG, answers, eagle_engine, prompts, random_draft, saved
from tests.support.golden_data import checkpoint
from tests.support.tiny_engines import SMALL, driven, rescheduled, tiny_engine


@pytest.mark.thorough
def test_every_pair_of_features_gives_the_same_text(tmp_path):
    """Trees on two devices, whose KV lies in the pages of the layers without a window."""
    folder = saved(tmp_path, random_draft("gemma3", 4))
    proposed, accepted = check_every_pair_of_features(
        "gemma3", eagle_engine(folder, "gemma3", topk=3, tensor_parallel_size=2)
    )
    assert 5 < accepted < proposed


def test_preemption_chunks_cached_prefixes_and_samples_change_nothing(folder):
    llm = eagle_engine(folder, topk=2)
    num_pages = 1 + llm.parts.spec.programs.groups.max_sequence_pages(SMALL["max_model_len"], chunk=7)
    llm = always(rescheduled(llm, "hits", num_pages=num_pages, max_chunk_tokens=7))
    for _ in range(2):
        with counted(llm) as seen:
            outputs = llm.generate(prompts() * 2, LONG, use_tqdm=False)
        assert [out.outputs[0].token_ids for out in outputs] == answers() * 2
        assert np.sum(seen, axis=0)[1] > 10
    assert llm.stats.num_preemptions > 0
    assert llm.stats.num_cached_tokens > 0
    samples = SamplingParams(n=3, seed=3, max_tokens=20, ignore_eos=True)
    (found,), (expected,) = (
        each.generate([prompts()[1]], samples, use_tqdm=False) for each in (llm, tiny_engine("llama3"))
    )
    assert [sample.token_ids for sample in found.outputs] == [sample.token_ids for sample in expected.outputs]
    llm.reset_prefix_cache()
    assert llm.stats.num_pages_free == num_pages - 1


@pytest.mark.thorough
def test_cached_pages_have_the_kv_of_the_draft(folder):
    """With cached prefixes about as many drafts are accepted: only one feature is missing."""
    plain = eagle_engine(folder, topk=1)
    cached = always(rescheduled(plain, "hits"))
    accepted = list[int]()
    for llm in (plain, cached, cached):
        with driven(llm, 5, is_overlapped=True), counted(llm) as seen:
            outputs = llm.generate(prompts(), LONG, use_tqdm=False)
        assert [out.outputs[0].token_ids for out in outputs] == answers()
        accepted.append(int(np.sum(seen, axis=0)[1]))
    assert accepted[0] == accepted[1]
    assert abs(accepted[2] - accepted[0]) <= 0.1 * accepted[0]


def test_a_folder_is_read_back_as_it_was_written(naive, folder):
    own = eagle_engine(folder, topk=1).parts.runner.weights["draft"]
    assert own["tokens"][:2].tolist() == naive.vocabulary.tolist()
    rest = {name: leaf for name, leaf in own.items() if name != "tokens"}
    for path, leaf in jax.tree.leaves_with_path(naive.draft):
        found = dict(jax.tree.leaves_with_path(rest))[path]
        size = 2 if "lm_head" in jax.tree_util.keystr(path) else len(leaf)
        np.testing.assert_array_equal(found[:size], leaf[:size])


def test_drafts_that_do_not_fit_are_refused(tmp_path):
    def error(**options):
        given = {"method": "eagle3", "model": str(tmp_path), "num_speculative_tokens": 3} | options
        with pytest.raises(ConfigError) as caught:
            LLM(str(checkpoint("llama3")), speculative_config=given, **SMALL)
        return str(caught.value)

    naive = random_draft("llama3", 4)
    saved(tmp_path, replace(naive, vocabulary=np.array([1, 2, 2, 3])))
    assert "d2t must give different tokens, from 0 to" in error()
    saved(tmp_path, replace(naive, config=replace(naive.config, tap_layers=(0, 1, 3))))
    assert "reads layers 0, 1, 3 of the model, which must be different ones of its 3" in error()
    saved(tmp_path, replace(naive, config=replace(naive.config, vocab_size=8)))
    assert "has a target vocabulary of 8, the model has 320: it is of another model" in error()
    assert "eagle_topk=4 must be an integer from 1 to 3" in error(eagle_topk=4)
    assert "eagle_topk is an option of method='eagle3'" in error(method="ngram", eagle_topk=2, model=None)
    (tmp_path / "config.json").write_text("{}")
    assert "config.json has no 'vocab_size'" in error()
