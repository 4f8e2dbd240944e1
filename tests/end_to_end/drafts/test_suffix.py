"""Drafts of earlier text change no token, and come from outputs of the same tenant, salt and adapter only."""

import numpy as np
import pytest

from jaxserve import SamplingParams
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.speculative_config import SpeculativeConfig
from tests.support.adapters.random_adapters import tiny, write_random_adapter
from tests.support.draft_laws import check_every_pair_of_features
from tests.support.drafting import always, counted, greedy_and_sampled
from tests.support.golden_data import goldens
from tests.support.tiny_engines import SMALL, rescheduled, tiny_engine

RING = 64  # tokens: most texts are overwritten soon


def suffix(family, ring=RING, **options):
    config = SpeculativeConfig(method="suffix", num_speculative_tokens=6, suffix_decoding_cached_tokens=ring)
    return always(tiny_engine(family, speculative_config=config, **options))


@pytest.mark.thorough
def test_every_pair_of_features_gives_the_same_text():
    """On two devices, with windows."""
    llm = suffix("gemma3", tensor_parallel_size=2)
    for _ in range(2):  # at the second time with earlier outputs
        proposed, accepted = check_every_pair_of_features("gemma3", llm)
        assert 10 < accepted < proposed


@pytest.mark.thorough
def test_preemption_chunks_and_cached_prefixes_change_nothing():
    prompts = [golden.prompt * 2 for golden in goldens("llama3")] * 2
    params = greedy_and_sampled(len(prompts))
    expected = [out.outputs[0].token_ids for out in tiny_engine("llama3").generate(prompts, params, use_tqdm=False)]
    num_pages = 1 + suffix("llama3").parts.spec.programs.groups.max_sequence_pages(SMALL["max_model_len"], chunk=7)
    llm = always(rescheduled(suffix("llama3"), "hits", num_pages=num_pages, max_chunk_tokens=7))
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [out.outputs[0].token_ids for out in outputs] == expected
    assert llm.stats.num_preemptions > 0


@pytest.mark.thorough
def test_earlier_outputs_help_their_owner_alone():
    """A sampled text does not repeat itself; once it is known, its tokens are accepted run after run."""
    llm = suffix("llama3", ring=512, scheduling_policy="fair")
    (golden, *_), params = goldens("llama3"), SamplingParams(temperature=1.5, max_tokens=48, ignore_eos=True, seed=3)

    def accepted(salt=None, tenant=None):
        prompt = {"prompt_token_ids": golden.prompt} | ({} if salt is None else {"cache_salt": salt})
        with counted(llm) as seen:
            llm.generate([prompt], params, use_tqdm=False, tenant=tenant)
        return int(np.sum(seen, axis=0)[1])

    first, second = accepted(), accepted()
    assert first < 10
    assert second > 30
    assert [accepted("a"), accepted(tenant="a"), accepted("a", "a")] == [first] * 3
    assert [accepted(), accepted("a")] == [second, second]


@pytest.mark.thorough
def test_earlier_outputs_help_the_same_adapter_alone(tmp_path):
    """Adapters that add zeros say what the model says: any draft from another's output would be accepted, too."""
    llm = suffix("llama3", ring=512, enable_lora=True)
    a, b = (write_random_adapter(tmp_path / name, tiny("llama3"), rank=4, seed=0, size=0.0) for name in "ab")
    (golden, *_), params = goldens("llama3"), SamplingParams(temperature=1.5, max_tokens=48, ignore_eos=True, seed=3)
    texts = set[tuple[int, ...]]()

    def accepted(adapter=None, salt=None):
        prompt = {"prompt_token_ids": golden.prompt} | ({} if salt is None else {"cache_salt": salt})
        with counted(llm) as seen:
            (out,) = llm.generate([prompt], params, use_tqdm=False, lora_request=adapter)
        texts.add(tuple(out.outputs[0].token_ids))
        return int(np.sum(seen, axis=0)[1])

    first, second = accepted(a), accepted(a)
    assert first < 10
    assert second > 30
    assert [accepted(b), accepted(), accepted(a, "salt")] == [first] * 3
    assert [accepted(a), accepted(b), accepted(), accepted(a, "salt")] == [second] * 4
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "ngram", "suffix_decoding_cached_tokens": 5}, "suffix_decoding_cached_tokens is an option of"),
        ({"method": "suffix", "prompt_lookup_max": 5}, "prompt_lookup_max is an option of method='ngram'"),
        ({"method": "suffix", "suffix_decoding_min_token_prob": 2}, "must be a number from 0 to 1"),
        ({"method": "suffix", "suffix_decoding_cached_tokens": -1}, "suffix_decoding_cached_tokens"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        SpeculativeConfig(num_speculative_tokens=3, **options)
