"""The engine's greedy tokens equal those of transformers under every schedule."""

import pytest

from jaxserve import SamplingParams
from tests.support.golden_data import ENGINE_FAMILIES, checkpoint, goldens
from tests.support.naive_loop import NaiveModel
from tests.support.tiny_engines import tiny_engine

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)


def generate(llm, prompts, params=GREEDY):
    return [out.outputs[0].token_ids for out in llm.generate(prompts, params, use_tqdm=False)]


def expected(family):
    return [g.prompt for g in goldens(family)], [g.greedy for g in goldens(family)]


@pytest.mark.parametrize("family", ENGINE_FAMILIES)
def test_alone(family):
    llm = tiny_engine(family)
    for golden in goldens(family):
        assert generate(llm, [golden.prompt]) == [golden.greedy]


@pytest.mark.parametrize("family", ENGINE_FAMILIES)
def test_among_others_that_come_and_go(family):
    llm = tiny_engine(family)
    prompts, tokens = expected(family)
    others = [[5 + i] * (3 + 7 * i) for i in range(9)]
    params = [GREEDY] * 3 + [SamplingParams(max_tokens=3 + i, seed=i) for i in range(9)]
    assert generate(llm, prompts + others, params)[:3] == tokens


@pytest.mark.parametrize(("family", "chunk"), [("llama2", 1), ("llama3", 16), ("gemma3", 7)])
def test_prompts_in_chunks(family, chunk):
    prompts, tokens = expected(family)
    assert generate(tiny_engine(family, max_chunk_tokens=chunk), prompts) == tokens


@pytest.mark.thorough
def test_a_rope_with_two_tables_is_settled_by_the_engines_context():
    """Phi-3's original context has 32 tokens here: an engine for 128 uses the long table from the first token on."""
    prompts, tokens = expected("phi3")
    assert generate(tiny_engine("phi3", max_chunk_tokens=16), prompts) == tokens


@pytest.mark.parametrize(("family", "num_pages", "chunk"), [("llama3", 11, 32), ("gemma3", 26, 8)])
def test_preempted_by_a_small_pool(family, num_pages, chunk):
    llm = tiny_engine(family, num_pages=num_pages, max_num_seqs=4, max_chunk_tokens=chunk)
    prompts, tokens = expected(family)
    order = [0, 0, 0, 0, 0, 2, 2, 1, 1, 1, 1]  # short prompts are admitted together, then grow
    assert generate(llm, [prompts[i] for i in order]) == [tokens[i] for i in order]
    assert llm.stats.num_preemptions > 0


@pytest.mark.parametrize(("family", "size"), [("gemma3", 4)])
def test_tensor_parallel(family, size):
    prompts, tokens = expected(family)
    assert generate(tiny_engine(family, tensor_parallel_size=size), prompts) == tokens


@pytest.mark.parametrize("family", ["llama3", "gemma3"])
def test_the_naive_loop_itself_equals_transformers(family):
    golden = goldens(family)[1]
    assert NaiveModel.load(checkpoint(family)).greedy(golden.prompt, 8) == golden.greedy[:8]
