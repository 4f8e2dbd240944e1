"""Log-probabilities of outputs and prompts, in any batch and chunking, are those of the raw logits."""

import numpy as np
import pytest

from jaxserve import SamplingParams
from tests.support.golden_data import goldens
from tests.support.tiny_engines import tiny_engine

TOLERANCE = 1e-4


def log_softmax(logits):
    z = logits.astype(np.float64)
    return z - np.log(np.exp(z - z.max(-1, keepdims=True)).sum(-1, keepdims=True)) - z.max(-1, keepdims=True)


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    ("family", "options"),
    [("llama3", {}), ("llama3", {"max_chunk_tokens": 7}), ("llama3", {"tensor_parallel_size": 2})],
)
def test_prompt_logprobs_equal_transformers(family, options):
    golden = goldens(family)[2]
    params = SamplingParams(temperature=1.0, seed=0, max_tokens=2, prompt_logprobs=3)
    others = [SamplingParams(max_tokens=5, seed=i, prompt_logprobs=None) for i in range(3)]
    llm = tiny_engine(family, **options)
    out = llm.generate([[5, 6], golden.prompt, [9] * 40, [8]], [others[0], params, *others[1:]], use_tqdm=False)[1]
    law = log_softmax(golden.logits)
    assert out.prompt_logprobs[0] is None
    assert len(out.prompt_logprobs) == len(golden.prompt)
    for position, entry in enumerate(out.prompt_logprobs[1:], start=1):
        token, row = golden.prompt[position], law[position - 1]
        assert abs(entry[token].logprob - row[token]) < TOLERANCE
        # Tokens closer than rounding may swap ranks.
        assert (row > row[token] + 1e-5).sum() < entry[token].rank <= 1 + (row > row[token] - 1e-5).sum()
        for top in np.argsort(-row)[:3].tolist():
            assert abs(entry[top].logprob - row[top]) < TOLERANCE
        assert 3 <= len(entry) <= 4


def test_output_logprobs_are_of_the_raw_logits_whatever_the_sampling():
    golden = goldens("llama3")[1]
    biased = SamplingParams(
        temperature=0.3, seed=1, max_tokens=1, logprobs=5, logit_bias={11: 100.0}, presence_penalty=1.0
    )
    out = tiny_engine("llama3").generate([golden.prompt], biased, use_tqdm=False)[0].outputs[0]
    row = log_softmax(golden.logits[-1])
    assert out.token_ids == [11]
    assert out.logprobs[0][11].logprob == pytest.approx(row[11], abs=TOLERANCE)
    assert out.cumulative_logprob == pytest.approx(row[11], abs=TOLERANCE)
    assert list(out.logprobs[0])[1:] == [t for t in np.argsort(-row)[:5].tolist() if t != 11]


def test_logprobs_are_given_once_a_token_after_preemption():
    prompts = [g.prompt for g in goldens("llama3")] * 2
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=1, prompt_logprobs=0)
    small, roomy = tiny_engine("llama3", num_pages=11, max_num_seqs=4), tiny_engine("llama3")
    results = [llm.generate(prompts, params, use_tqdm=False) for llm in (small, roomy)]
    for a, b in zip(*results, strict=True):
        assert len(a.outputs[0].logprobs) == 24
        np.testing.assert_allclose(a.outputs[0].cumulative_logprob, b.outputs[0].cumulative_logprob, atol=1e-3)
        known = [
            [p[t].logprob for t, p in zip(o.prompt_token_ids[1:], o.prompt_logprobs[1:], strict=True)] for o in (a, b)
        ]
        np.testing.assert_allclose(known[0], known[1], atol=TOLERANCE)


def test_all_logprobs_where_the_engine_allows_them():
    llm = tiny_engine("llama3", max_logprobs=-1)
    params = SamplingParams(temperature=0, max_tokens=1, logprobs=-1)
    entry = llm.generate([goldens("llama3")[0].prompt], params, use_tqdm=False)[0].outputs[0].logprobs[0]
    assert len(entry) == 320
    assert np.exp([e.logprob for e in entry.values()]).sum() == pytest.approx(1.0, abs=1e-5)
