"""Sequences that reuse cached prefixes have the same outputs as without the cache."""

from dataclasses import replace

import numpy as np
import pytest

from jaxserve import SamplingParams
from jaxserve.core.errors import RequestError
from tests.support.golden_data import ENGINE_FAMILIES, goldens
from tests.support.tiny_engines import tiny_engine

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=0)
PAGE = 16


def cached_engine(family="llama3", **options):
    """Shares the pool of `tiny_engine(family)`: steps of that engine in between overwrite the cache."""
    llm = tiny_engine(family, prefix_eviction="hits", **options)
    llm.reset_prefix_cache()
    return llm


def generate(llm, prompts, params=GREEDY):
    return llm.generate(prompts, params, use_tqdm=False)


def tokens(outputs):
    return [output.outputs[0].token_ids for output in outputs]


def logprobs(output):
    return [next(iter(entry.values())).logprob for entry in output.outputs[0].logprobs]


@pytest.mark.parametrize("family", ENGINE_FAMILIES)
def test_the_second_time_prompts_are_found_and_continued_alike(family):
    llm, known = cached_engine(family), goldens(family)
    prompts = [golden.prompt for golden in known]
    first, second = generate(llm, prompts), generate(llm, prompts)
    assert tokens(first) == tokens(second) == [golden.greedy for golden in known]
    assert [output.num_cached_tokens for output in first] == [0, 0, 0]
    assert [output.num_cached_tokens for output in second] == [(len(p) - 1) // PAGE * PAGE for p in prompts]
    for a, b in zip(first, second, strict=True):
        assert np.allclose(logprobs(a), logprobs(b), atol=1e-4)


@pytest.mark.parametrize("family", ENGINE_FAMILIES)
def test_a_conversation_finds_its_own_turns(family):
    llm, golden = cached_engine(family), goldens(family)[2]
    (first,) = generate(llm, [golden.prompt])
    turn = golden.prompt + first.outputs[0].token_ids + [7, 8, 9]
    (second,) = generate(llm, [turn])
    (alone,) = generate(tiny_engine(family), [turn])
    assert tokens([second]) == tokens([alone])
    assert second.num_cached_tokens == (len(golden.prompt) + 24 - 1) // PAGE * PAGE


@pytest.mark.parametrize("family", ["llama3", "gemma3"])
def test_prompts_that_begin_alike_share_while_they_run(family):
    llm, beginning = cached_engine(family, max_num_seqs=2), goldens(family)[2].prompt[:40]
    prompts = [[*beginning, 5 + i, *range(10, 14)] for i in range(8)]
    outputs = generate(llm, prompts)
    assert tokens(outputs) == tokens(generate(tiny_engine(family), prompts))
    assert sum(output.num_cached_tokens for output in outputs[2:]) == 6 * 32


@pytest.mark.parametrize(("family", "num_pages"), [("llama3", 11), ("gemma3", 26)])
def test_preempted_sequences_find_what_they_left(family, num_pages):
    llm = cached_engine(family, num_pages=num_pages, max_num_seqs=4, max_chunk_tokens=8)
    known, order = goldens(family), [0, 0, 0, 0, 0, 2, 2, 1, 1, 1, 1]
    outputs = generate(llm, [known[i].prompt for i in order])
    assert tokens(outputs) == [known[i].greedy for i in order]
    assert llm.stats.num_preemptions > 0


def test_a_salt_keeps_prompts_apart():
    llm, prompt = cached_engine(), goldens("llama3")[2].prompt
    salted = [{"prompt_token_ids": prompt, "cache_salt": salt} for salt in ("a", "a", "b")]
    found = [generate(llm, p)[0].num_cached_tokens for p in ({"prompt_token_ids": prompt}, *salted, prompt)]
    assert found == [0, 0, 48, 0, 48]


def test_a_request_may_refuse_what_is_cached():
    llm, prompt = cached_engine(), goldens("llama3")[2].prompt
    params = replace(GREEDY, skip_reading_prefix_cache=True)
    found = [generate(llm, prompt, p)[0].num_cached_tokens for p in (GREEDY, params, GREEDY)]
    assert found == [0, 0, 48]


@pytest.mark.parametrize("salt", ["", "x" * 129, 7])
def test_a_salt_that_is_none_is_refused(salt):
    with pytest.raises(RequestError, match="cache_salt") as caught:
        generate(cached_engine(), {"prompt_token_ids": [1, 2], "cache_salt": salt})
    assert caught.value.param == "cache_salt"


def test_forgetting_leaves_nothing_to_be_found():
    llm, prompt = cached_engine(), goldens("llama3")[2].prompt
    generate(llm, prompt)
    assert llm.stats.num_pages_cached > 0
    assert llm.reset_prefix_cache()
    assert llm.stats.num_pages_cached == 0
    assert generate(llm, prompt)[0].num_cached_tokens == 0


def test_what_was_computed_with_other_weights_is_not_found():
    llm, prompt = cached_engine(), goldens("llama3")[2].prompt
    before = generate(llm, prompt)
    llm.update_weights(llm.parts.runner.params)
    after = generate(llm, prompt)
    assert after[0].num_cached_tokens == 0
    assert tokens(after) == tokens(before)


def test_what_is_asked_of_a_prompt_is_computed():
    prompt, params = goldens("llama3")[2].prompt, SamplingParams(temperature=0, max_tokens=4, prompt_logprobs=0)

    def ask(llm):
        (output,) = generate(llm, prompt, params)
        (score,) = llm.score([(prompt, [3, 4])], use_tqdm=False)
        (vector,) = llm.embed([prompt], use_tqdm=False)
        return output, score, vector.outputs.embedding

    output, score, vector = ask(tiny_engine("llama3"))
    llm = cached_engine()
    generate(llm, prompt)
    found_output, found_score, found_vector = ask(llm)
    assert found_output.num_cached_tokens == 0
    assert [entry is None for entry in found_output.prompt_logprobs] == [i == 0 for i in range(len(prompt))]
    for a, b in zip(found_output.prompt_logprobs[1:], output.prompt_logprobs[1:], strict=True):
        assert next(iter(a.values())).logprob == pytest.approx(next(iter(b.values())).logprob, abs=1e-4)
    assert llm.stats.num_cached_tokens >= 48  # the score's context
    assert found_score.logprob == pytest.approx(score.logprob, abs=1e-4)
    assert np.allclose(found_vector, vector, atol=1e-5)


def test_samples_and_penalties_do_not_notice():
    llm, prompt = cached_engine(), goldens("llama3")[2].prompt
    params = SamplingParams(n=3, temperature=1.0, max_tokens=12, seed=5, ignore_eos=True)
    repeating = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, repetition_penalty=1.5)
    wanted = [generate(tiny_engine("llama3"), prompt, p)[0] for p in (params, repeating)]
    for _ in range(2):
        got = [generate(llm, prompt, p)[0] for p in (params, repeating)]
        assert [[o.token_ids for o in g.outputs] for g in got] == [[o.token_ids for o in w.outputs] for w in wanted]
