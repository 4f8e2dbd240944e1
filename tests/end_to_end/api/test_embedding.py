"""Embeddings are the pooled hidden states of the naive forward pass, for any chunking and batch."""

from functools import cache

import numpy as np
import pytest

from jaxserve import SamplingParams
from jaxserve.core.errors import RequestError
from jaxserve.engine.tasks.embed import embed
from tests.support.golden_data import checkpoint, goldens
from tests.support.naive_loop import NaiveModel
from tests.support.tiny_engines import submit, tiny_engine

PROMPTS = [[5], [7, 8], [9] * 33, list(range(3, 70)), [5]]
WAYS = [
    ("llama3", {}),
    ("llama3", {"max_chunk_tokens": 7}),
    ("gemma3", {"max_chunk_tokens": 7}),
    ("llama3", {"num_pages": 11, "max_num_seqs": 4}),
    ("gemma3", {"num_pages": 26, "max_num_seqs": 4, "max_chunk_tokens": 8}),
]


@cache
def expected(family: str, pooling: str) -> list[np.ndarray]:
    model = NaiveModel.load(checkpoint(family))
    states = [model.hidden(prompt).astype(np.float64) for prompt in PROMPTS]
    return [s.mean(axis=0) if pooling == "mean" else s[-1] for s in states]


def embed_on(llm, prompts, **options):
    return embed(llm.output_processor, llm.parts.input_processor, prompts, **options)


@pytest.mark.thinned(5)
@pytest.mark.parametrize(("family", "options"), WAYS)
@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_embeddings_equal_the_naive_forward_pass(family, options, pooling):
    llm = tiny_engine(family, **options)
    texts = [
        submit(llm, g.prompt, SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)) for g in goldens(family)
    ]
    outputs = embed_on(llm, PROMPTS, pooling=pooling, normalize=False)
    for out, prompt, wanted in zip(outputs, PROMPTS, expected(family, pooling), strict=True):
        assert out.prompt_token_ids == prompt
        np.testing.assert_allclose(out.outputs.embedding, wanted, atol=2e-4)
    for _ in llm.parts.engine.drain():
        pass
    assert [s.token_ids for s in texts] == [g.greedy[:24] for g in goldens(family)]


def test_embeddings_have_length_one_by_default():
    plain = embed_on(tiny_engine("llama3"), PROMPTS, normalize=False)
    for out, other in zip(embed_on(tiny_engine("llama3"), PROMPTS), plain, strict=True):
        vector, raw = np.array(out.outputs.embedding), np.array(other.outputs.embedding)
        assert np.linalg.norm(vector) == pytest.approx(1.0)
        np.testing.assert_allclose(vector, raw / np.linalg.norm(raw), atol=1e-6)
        assert np.linalg.norm(raw) != pytest.approx(1.0, rel=1e-3)


def test_bad_input_is_named_before_anything_runs():
    llm = tiny_engine("llama3")
    with pytest.raises(RequestError, match="pooling='max' must be one of 'mean', 'last'"):
        embed_on(llm, [[5]], pooling="max")
    with pytest.raises(RequestError, match="prompt 1: token id 999"):
        embed_on(llm, [[5], [999]])
    with pytest.raises(RequestError, match=r"prompt 0: .* 128 tokens"):
        embed_on(llm, [[5] * 129, [5]])
    assert not llm.parts.engine.has_work
    assert len(embed_on(llm, [[5] * 128])) == 1
