"""Samples that wait for a slot draw the same tokens as when all samples start at once."""

import pytest

from jaxserve import SamplingParams
from tests.support.golden_data import goldens
from tests.support.tiny_engines import tiny_engine


@pytest.mark.parametrize(
    "penalties", [{}, {"presence_penalty": 2.0, "repetition_penalty": 1.5}], ids=["plain", "penalties"]
)
def test_few_slots_give_the_same_samples(penalties):
    params = SamplingParams(n=6, seed=3, max_tokens=12, ignore_eos=True, **penalties)
    few, many = (tiny_engine("llama3", max_num_seqs=rows) for rows in (2, 8))
    texts = []
    for llm in (few, many):
        (out,) = llm.generate([goldens("llama3")[1].prompt], params, use_tqdm=False)
        texts.append([sample.token_ids for sample in out.outputs])
    assert texts[0] == texts[1]
    assert len(set(map(tuple, texts[0]))) == 6
