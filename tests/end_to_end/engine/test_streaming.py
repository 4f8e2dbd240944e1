"""Streaming sequences (attention sinks) have the text of the naive stream, whatever is in their batch."""

from functools import cache

import numpy as np
import pytest

from jaxserve import SamplingParams
from jaxserve.core.errors import RequestError
from jaxserve.core.options.kv_policy_config import StreamingConfig
from jaxserve.core.options.speculative_config import SpeculativeConfig
from tests.support.drafting import always, counted
from tests.support.golden_data import checkpoint, goldens
from tests.support.naive_loop import NaiveModel
from tests.support.naive_streaming import NaiveStream
from tests.support.tiny_engines import SIZES, driven, tiny_engine

POLICY = StreamingConfig(name="streaming", num_sinks=3, window=40)
NUM_TOKENS = 80
GREEDY = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)
PROMPTS = [golden.prompt for golden in goldens("llama3")]


def engine(family="llama3", **options):
    return tiny_engine(family, kv_policy=POLICY, **options)


@cache
def naive(family, index):
    """The continuation of a golden's prompt; all together are longer than the context."""
    prompt = goldens(family)[index].prompt
    model = NaiveModel.load(checkpoint(family))
    stream = NaiveStream(model, POLICY.num_sinks, POLICY.window, page_size=16, max_len=192)
    return stream.greedy(prompt, NUM_TOKENS)


def texts(outputs):
    return [output.outputs[0].token_ids for output in outputs]


def generate(llm, prompts, params=GREEDY):
    return texts(llm.generate(prompts, params, use_tqdm=False))


@pytest.mark.thinned(1)
@pytest.mark.parametrize("family", ["llama3", "gemma3"])
def test_text_beyond_the_context_equals_the_naive_stream(family):
    prompt = goldens(family)[2].prompt
    assert len(prompt) + NUM_TOKENS > SIZES["max_model_len"]
    assert generate(engine(family), [prompt]) == [naive(family, 2)]


@pytest.mark.thorough
def test_the_control_with_other_sinks_the_text_differs():
    other = tiny_engine("llama3", kv_policy=StreamingConfig(name="streaming", num_sinks=0, window=43))
    assert generate(other, [PROMPTS[2]]) != [naive("llama3", 2)]


@pytest.mark.parametrize(("num_rounds", "is_overlapped"), [(1, False), (5, True)])
def test_rounds_and_overlap_change_nothing(num_rounds, is_overlapped):
    with driven(engine(), num_rounds, is_overlapped):
        assert generate(engine(), [PROMPTS[2]]) == [naive("llama3", 2)]


def test_a_batch_of_streaming_and_whole_sequences_in_chunks():
    whole = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True, kv_policy=False)
    others = [np.random.default_rng(i).integers(3, 90, 30 + i).tolist() for i in range(6)]
    llm = engine(max_chunk_tokens=7)
    found = generate(llm, [*others, *PROMPTS[1:3]], [whole] * 6 + [GREEDY] * 2)
    assert found[6:] == [naive("llama3", 1), naive("llama3", 2)]
    assert found[:6] == generate(tiny_engine("llama3"), others, SamplingParams(**vars(whole) | {"kv_policy": None}))


@pytest.mark.thorough
@pytest.mark.parametrize("own", [{"method": "ngram"}, {"method": "layer_skip", "skip_layers": (1,)}])
def test_drafts_of_whole_sequences_change_nothing_next_to_streaming_ones(own):
    """Which do not draft, also where the others do in the same pass. With n-grams a step may have fewer rounds than
    were planned."""
    whole = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, kv_policy=False)
    others = [np.random.default_rng(i).integers(3, 9, 20 + i).tolist() for i in range(3)]
    llm = always(engine(speculative_config=SpeculativeConfig(num_speculative_tokens=3, **own)))
    with counted(llm) as seen:
        found = generate(llm, [*others, *PROMPTS[1:3]], [whole] * 3 + [GREEDY] * 2)
    assert found[3:] == [naive("llama3", 1), naive("llama3", 2)]
    assert found[:3] == generate(tiny_engine("llama3"), others, SamplingParams(**vars(whole) | {"kv_policy": None}))
    assert sum(proposed for proposed, _ in seen) > 20


def test_preemption_changes_nothing():
    llm = engine(num_pages=12, max_num_seqs=4)
    before = llm.stats.num_preemptions
    assert generate(llm, [PROMPTS[2]] * 4) == [naive("llama3", 2)] * 4
    assert llm.stats.num_preemptions > before


def test_cached_prefixes_end_before_the_first_drop():
    llm = engine(prefix_eviction="hits")
    llm.reset_prefix_cache()
    for num_cached in (0, 32):
        (output,) = llm.generate([PROMPTS[2]], GREEDY, use_tqdm=False)
        assert texts([output]) == [naive("llama3", 2)]
        assert output.num_cached_tokens == num_cached
    assert llm.stats.num_pages_cached == 2, "pages with copies of sinks are not shared"


def test_samples_share_a_short_prompt_and_part_with_the_seed():
    params = SamplingParams(n=3, seed=5, max_tokens=60, ignore_eos=True, logprobs=0)
    together = engine().generate([PROMPTS[0]], params, use_tqdm=False)[0].outputs
    assert len({tuple(sample.token_ids) for sample in together}) == 3
    crowded = engine().generate([PROMPTS[1], PROMPTS[0]], [GREEDY, params], use_tqdm=False)[1].outputs
    assert [sample.token_ids for sample in crowded] == [sample.token_ids for sample in together]


@pytest.mark.thorough
def test_two_devices_give_the_same_text():
    assert generate(engine(tensor_parallel_size=2), [PROMPTS[2]]) == [naive("llama3", 2)]


def test_a_prompt_beyond_the_context_is_scored_like_the_text_it_continues():
    (short,) = engine().generate([PROMPTS[2]], SamplingParams(**vars(GREEDY) | {"logprobs": 0}), use_tqdm=False)
    text = [*PROMPTS[2], *short.outputs[0].token_ids]
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    (scored,) = engine().generate([text], params, use_tqdm=False)
    drawn = [entry[token].logprob for entry, token in zip(short.outputs[0].logprobs, text[-NUM_TOKENS:], strict=True)]
    again = [entry[token].logprob for entry, token in zip(scored.prompt_logprobs, text, strict=True) if entry]
    np.testing.assert_allclose(again[-NUM_TOKENS:], drawn, atol=1e-4)


def test_without_the_policy_a_sequence_fills_the_context_and_a_request_for_it_is_refused():
    whole = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True, kv_policy=False)
    (output,) = engine().generate([PROMPTS[2]], whole, use_tqdm=False)
    assert len(PROMPTS[2]) + len(output.outputs[0].token_ids) == SIZES["max_model_len"]
    with pytest.raises(RequestError, match="kv_policy=True: this engine was built without kv_policy") as caught:
        tiny_engine("llama3").generate([[5]], SamplingParams(kv_policy=True), use_tqdm=False)
    assert caught.value.param == "kv_policy"
