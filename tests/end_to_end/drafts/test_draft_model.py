"""A draft model changes no token, text, log-probability or finish reason, and a model that drafts for itself is always
right."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import SamplingParams
from jaxserve.core.options.speculative_config import SpeculativeConfig
from tests.end_to_end.engine.test_overlap_and_multi_step import FEATURES, pairwise, run
from tests.support.drafting import always, counted
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import SMALL, driven, rescheduled, submit, tiny_engine

ROWS = pairwise(FEATURES | {"repetition_penalty": (1.0, 1.3)})
LONG = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)


def drafting(family, draft, **options):
    config = SpeculativeConfig(method="draft_model", model=str(checkpoint(draft)), num_speculative_tokens=3)
    return always(tiny_engine(family, speculative_config=config, **options))


def texts(llm, prompts, params):
    return [output.outputs[0].token_ids for output in llm.generate(prompts, params, use_tqdm=False)]


# Gemma's layers with a window have their own pages, in which the draft has no KV. It has one KV head, which each device
# has, in the target's pages and in the draft's.
@pytest.mark.thorough
@pytest.mark.parametrize(("family", "options"), [("llama3", {}), ("gemma3", {"tensor_parallel_size": 2})])
def test_every_pair_of_features_gives_the_same_text(family, options):
    prompts = [goldens(family)[i % 3].prompt[: 4 + i] for i in range(len(ROWS))]
    params = [SamplingParams(max_tokens=12 + 5 * (i % 4), seed=i, **row) for i, row in enumerate(ROWS)]
    expected, logprobs, _ = run(tiny_engine(family), prompts, params, 1, is_overlapped=False)
    llm = drafting(family, family, **options)
    with counted(llm) as seen:
        outputs, found, _ = run(llm, prompts, params, 5, is_overlapped=True)
    assert outputs == expected
    np.testing.assert_allclose(found, logprobs, atol=2e-5)  # two devices add in another order
    proposed, accepted = np.sum(seen, axis=0)
    # A draft model does not know the penalties of its own drafts, nor where a text ends.
    assert 0.7 * proposed < accepted < proposed


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_model_that_drafts_for_itself_is_always_right(temperature):
    """Random tokens too: both draw with the random numbers of their positions."""
    prompts = [golden.prompt for golden in goldens("llama3")] * 2
    params = [SamplingParams(temperature=temperature, seed=i, max_tokens=32, ignore_eos=True) for i in range(6)]
    llm = drafting("llama3", "llama3")
    with counted(llm) as seen:
        assert texts(llm, prompts, params) == texts(tiny_engine("llama3"), prompts, params)
    proposed, accepted = np.sum(seen, axis=0)
    assert proposed == accepted > 6 * 20


def test_a_row_catches_up_on_tokens_that_it_read_without_drafts():
    """In the round of its first drafts."""
    golden, llm = goldens("llama3")[0], drafting("llama3", "llama3")
    engine = llm.parts.engine
    with driven(llm, 5, is_overlapped=False):
        sequence = submit(llm, golden.prompt, LONG)
        speculation, engine.scheduler.state.speculation = engine.scheduler.state.speculation, None
        for _ in range(4):
            engine.step()
        assert len(sequence.token_ids) > 10
        engine.scheduler.state.speculation = speculation
        with counted(llm) as seen:
            for _ in engine.drain():
                pass
    assert seen[0][0] > 3
    assert [sequence.token_ids] == texts(tiny_engine("llama3"), [golden.prompt], LONG)
    proposed, accepted = np.sum(seen, axis=0)
    assert proposed == accepted > 10


def test_preemption_chunks_and_cached_prefixes_change_nothing():
    prompts = [golden.prompt * 2 for golden in goldens("llama3")] * 2
    expected = texts(tiny_engine("llama3"), prompts, LONG)
    llm = drafting("llama3", "llama3")
    num_pages = 1 + llm.parts.spec.programs.groups.max_sequence_pages(SMALL["max_model_len"], chunk=7)
    llm = always(rescheduled(llm, "hits", num_pages=num_pages, max_chunk_tokens=7))
    for _ in range(2):
        with counted(llm) as seen:
            assert texts(llm, prompts, LONG) == expected
        proposed, accepted = np.sum(seen, axis=0)
        assert accepted > 0.9 * proposed > 0
    assert llm.stats.num_preemptions > 0
    assert llm.stats.num_cached_tokens > 0
    llm.reset_prefix_cache()
    assert llm.stats.num_pages_free == num_pages - 1


def test_samples_of_a_prompt_share_what_the_draft_has_read():
    prompt, params = goldens("llama3")[0].prompt * 2, SamplingParams(n=4, seed=3, max_tokens=20, ignore_eos=True)
    llm = drafting("llama3", "llama3")
    with counted(llm) as seen:
        (output,) = llm.generate([prompt], params, use_tqdm=False)
    (expected,) = tiny_engine("llama3").generate([prompt], params, use_tqdm=False)
    assert [o.token_ids for o in output.outputs] == [o.token_ids for o in expected.outputs]
    proposed, accepted = np.sum(seen, axis=0)
    assert proposed == accepted > 0


def test_weights_are_replaced_without_the_drafts():
    """The text is the new weights' own, whatever the draft model still proposes."""
    prompts = [golden.prompt for golden in goldens("llama3")]
    engines = plain, llm = tiny_engine("llama3"), drafting("llama3", "llama3")
    before = [engine.parts.runner.params for engine in engines]
    changed = before[0] | {"final_norm": before[0]["final_norm"] * jnp.float32(-1)}
    try:
        for engine in engines:
            engine.update_weights(changed)
        with counted(llm) as seen:
            assert texts(llm, prompts, LONG) == texts(plain, prompts, LONG)
    finally:
        for engine, params in zip(engines, before, strict=True):
            engine.update_weights(params)
    proposed, accepted = np.sum(seen, axis=0)
    assert accepted < 0.5 * proposed
