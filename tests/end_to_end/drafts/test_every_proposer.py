"""Drafts of every proposer change no token: in a batch of 16, of preempted requests in chunks with cached prefixes, and
of each request alone. `scripts/prove drafts_alone` has a hundred prompts of a real model."""

import jax
import numpy as np
import pytest

from jaxserve import LLM, SamplingParams
from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.engine.build.medusa_folder import write_medusa
from tests.support.drafting import always, counted
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import SMALL, rescheduled, tiny_engine

SIZES = {"max_num_seqs": 16, "buckets": "16 32x16", "num_pages": 200}
TIGHT = {"num_pages": 33, "max_chunk_tokens": 8}
NUM_HEADS = 3


@pytest.fixture(scope="module")
def models(tmp_path_factory, folder):
    """By method: a model that is right now and then, Medusa heads as before training, and the EAGLE draft."""
    near, heads = tmp_path_factory.mktemp("near"), tmp_path_factory.mktemp("heads")
    llm, random = LLM(str(checkpoint("llama3")), **SMALL), np.random.default_rng(0)
    params = llm.parts.runner.params
    llm.update_weights(jax.tree.map(lambda w: w * random.normal(1, 0.3, w.shape).astype(w.dtype), params))
    llm.save(near)
    size = llm.parts.model.d_model
    blocks = {"block": np.zeros((NUM_HEADS, size, size)), "bias": np.zeros((NUM_HEADS, size))}
    write_medusa(heads, blocks, ((0.5, 0.2),) * NUM_HEADS, "llama3")
    return {"draft_model": str(near), "medusa": str(heads), "eagle3": folder}


def prompts():
    return [(golden.prompt * 3)[: 12 + 5 * i] for i, golden in enumerate((goldens("llama3") * 3)[:8])]


REQUESTS = [
    (prompt, SamplingParams(temperature=temperature, seed=i, max_tokens=40, ignore_eos=True))
    for i, (prompt, temperature) in enumerate((prompt, t) for prompt in prompts() for t in (0.0, 0.8))
]


def texts(llm, requests):
    outputs = llm.generate([prompt for prompt, _ in requests], [params for _, params in requests], use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("layer_skip", {"skip_layers": (1, 2)}),
        # In CI others are preempted, greedy and sampled, in the tests of their files.
        pytest.param("ngram", {"prompt_lookup_min": 1}, marks=pytest.mark.thorough),
        pytest.param("ngram", {"prompt_lookup_min": 1, "prompt_lookup_branches": 2}, marks=pytest.mark.thorough),
        pytest.param("suffix", {}, marks=pytest.mark.thorough),
        pytest.param("draft_model", {}, marks=pytest.mark.thorough),
        pytest.param("layer_skip", {"skip_layers": (1,)}, marks=pytest.mark.thorough),
        pytest.param("medusa", {}, marks=pytest.mark.thorough),
        pytest.param("eagle3", {}, marks=pytest.mark.thorough),
        pytest.param("eagle3", {"eagle_topk": 2}, marks=pytest.mark.thorough),
        pytest.param("auto", {"learned": "eagle3"}, marks=pytest.mark.thorough),
    ],
    ids=lambda value: str(value),
)
def test_texts_are_those_without_drafts(method, options, models):
    learned = options.get("learned", method)
    own = {"model": models[learned]} if learned in models else {}
    config = SpeculativeConfig(method=method, num_speculative_tokens=4, **options, **own)
    llm = always(tiny_engine("llama3", **SIZES, speculative_config=config))
    expected = texts(tiny_engine("llama3", **SIZES), REQUESTS)
    tight = always(rescheduled(llm, "hits", **TIGHT))
    for engine in (llm, tight):
        with counted(engine) as seen:
            assert texts(engine, REQUESTS) == expected
        proposed, accepted = np.sum(seen, axis=0)
        assert 10 < accepted < proposed
    assert min(tight.stats.num_preemptions, tight.stats.num_cached_tokens) > 0
    with counted(llm) as seen:
        assert [texts(llm, [request])[0] for request in REQUESTS[::3]] == expected[::3]
    assert np.sum(seen, axis=0)[1] > 0
