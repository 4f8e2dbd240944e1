"""Tokens follow the distribution that the sampling parameters define, and depend on nothing else."""

import numpy as np
import pytest

from jaxserve import SamplingParams
from tests.support.golden_data import goldens
from tests.support.sampling_laws import chi_square_p, expected_law
from tests.support.tiny_engines import tiny_engine

PROMPT = goldens("llama3")[1].prompt
# A page and one token: once the page is cached, each draw computes a single token (192 decode steps for 1,536 draws).
DRAW_LEN = 17
LOGITS = goldens("llama3")[1].logits[DRAW_LEN - 1].astype(np.float64)
DRAWS = 1536
LAWS = {
    "temperature": {"temperature": 0.2},
    "top_p": {"temperature": 0.2, "top_p": 0.8},
    "all together": {"temperature": 0.4, "top_k": 40, "top_p": 0.9, "min_p": 0.01},
    "many candidates": {"temperature": 2.0, "top_k": 100, "top_p": 0.99},
}


def draw(count, **params):
    """`count` first tokens after PROMPT[:DRAW_LEN], from one request each with seeds 0, 1, 2, …"""
    llm = tiny_engine("llama3", prefix_eviction="hits")
    each = [SamplingParams(max_tokens=1, seed=seed, **params) for seed in range(count)]
    outputs = llm.generate([PROMPT[:DRAW_LEN]] * count, each, use_tqdm=False)
    return np.array([out.outputs[0].token_ids[0] for out in outputs])


@pytest.mark.parametrize("name", LAWS)
def test_draws_follow_their_law(name):
    law = expected_law(LOGITS, **LAWS[name])
    assert chi_square_p(draw(DRAWS, **LAWS[name]), law) > 1e-4


def test_a_slightly_wrong_law_is_rejected():
    """Control: the same draws do not fit a temperature 15 % higher."""
    law = expected_law(LOGITS, temperature=0.2 * 1.15)
    assert chi_square_p(draw(DRAWS, **LAWS["temperature"]), law) < 1e-4


def test_bias_and_allowed_tokens_change_the_law():
    allowed = [3, 9, 200, 301]
    law = expected_law(LOGITS, temperature=1.0, allowed=allowed, bias={9: 1.5, 200: -100.0})
    tokens = draw(DRAWS, temperature=1.0, allowed_token_ids=allowed, logit_bias={9: 1.5, 200: -100})
    assert chi_square_p(tokens, law) > 1e-4
    assert 200 not in tokens


def test_penalties_see_prompt_and_output():
    """One step of each penalty against numpy: greedy tokens under a strong penalty, token by token."""
    llm = tiny_engine("llama3")
    penalties = {"repetition_penalty": 1.6, "presence_penalty": 1.1, "frequency_penalty": 0.7}
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, prompt_logprobs=0, **penalties)
    tokens = llm.generate([PROMPT], params, use_tqdm=False)[0].outputs[0].token_ids
    from tests.support.golden_data import checkpoint
    from tests.support.naive_loop import NaiveModel
    from tests.support.sampling_laws import penalized

    naive, output = NaiveModel.load(checkpoint("llama3"), backend="xla"), []
    for token in tokens:
        logits = penalized(naive.logits(PROMPT + output)[-1], PROMPT, output, **penalties)
        assert token == int(logits.argmax())
        output.append(token)


@pytest.mark.parametrize("length", [1, 9])
def test_penalties_forget_the_slots_last_sequence(length):
    """A prompt of one token is computed in a decode bucket, unless counts must be cleared."""
    llm = tiny_engine("llama3", max_chunk_tokens=1)
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, presence_penalty=2.0, repetition_penalty=1.5)
    texts = [llm.generate([PROMPT[:length]], params, use_tqdm=False)[0].outputs[0].token_ids for _ in range(3)]
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_text_alone_and_among_31_others():
    params = SamplingParams(temperature=0.9, top_p=0.95, max_tokens=12, seed=77, ignore_eos=True)
    others = [SamplingParams(max_tokens=30 + i, seed=i, presence_penalty=i % 2, ignore_eos=True) for i in range(31)]
    llm = tiny_engine("llama3", max_num_seqs=32, max_num_batched_tokens=64, num_pages=600, buckets="8 32 64x32")
    alone = llm.generate([PROMPT], params, use_tqdm=False)[0].outputs[0].token_ids
    assert any("decode[tokens=8" in name for name in llm.parts.runner.programs.traces)
    prompts = [[7 + i] * (1 + i) for i in range(31)]
    crowd = llm.generate([*prompts[:15], PROMPT, *prompts[15:]], [*others[:15], params, *others[15:]], use_tqdm=False)
    assert crowd[15].outputs[0].token_ids == alone
    assert any("decode[tokens=32" in name for name in llm.parts.runner.programs.traces)
    other = llm.generate([PROMPT], SamplingParams(temperature=0.9, max_tokens=12, seed=78), use_tqdm=False)
    assert other[0].outputs[0].token_ids != alone


def test_preemption_does_not_change_a_sampled_text():
    params = SamplingParams(temperature=1.0, max_tokens=24, seed=5, ignore_eos=True)
    prompts = [g.prompt for g in goldens("llama3")] * 2
    small, roomy = tiny_engine("llama3", num_pages=11, max_num_seqs=4), tiny_engine("llama3")
    texts = [[o.outputs[0].token_ids for o in llm.generate(prompts, params, use_tqdm=False)] for llm in (small, roomy)]
    assert texts[0] == texts[1]
    assert small.stats.num_preemptions > 0


@pytest.mark.parametrize("family", ["llama3", "gemma3"])
def test_children_of_n_differ_and_each_equals_its_own_run(family):
    prompt = goldens(family)[2].prompt
    params = SamplingParams(temperature=1.0, n=5, max_tokens=10, seed=3, ignore_eos=True)
    llm = tiny_engine(family)
    samples = [c.token_ids for c in llm.generate([prompt], params, use_tqdm=False)[0].outputs]
    assert len({tuple(s) for s in samples}) == 5
    one = SamplingParams(temperature=1.0, n=1, max_tokens=10, seed=3, ignore_eos=True)
    assert llm.generate([prompt], one, use_tqdm=False)[0].outputs[0].token_ids == samples[0]
    crowded = tiny_engine(family, num_pages={"llama3": 11, "gemma3": 40}[family], max_num_seqs=4)
    assert [c.token_ids for c in crowded.generate([prompt], params, use_tqdm=False)[0].outputs] == samples


def test_padded_ids_are_never_drawn():
    """The vocabulary of 320 is padded to 384; at a huge temperature all 320 ids are about equally likely."""
    tokens = draw(DRAWS, temperature=1e4)
    assert tokens.max() < 320
    assert chi_square_p(tokens, expected_law(LOGITS, temperature=1e4)) > 1e-4
