"""A draft model changes no token, text, log-probability or finish reason, and a model that drafts for itself is always
right."""

from unittest.mock import patch

import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import LLM, SamplingParams
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.runner.drafts.draft_model import DraftModel
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


# Gemma's layers with a window have their own pages, in which the draft has no KV.
@pytest.mark.parametrize(("family", "draft"), [("llama3", "llama3"), ("gemma3", "llama3")])
def test_every_pair_of_features_gives_the_same_text(family, draft):
    prompts = [goldens(family)[i % 3].prompt[: 4 + i] for i in range(len(ROWS))]
    params = [SamplingParams(max_tokens=12 + 5 * (i % 4), seed=i, **row) for i, row in enumerate(ROWS)]
    expected, logprobs, _ = run(tiny_engine(family), prompts, params, 1, is_overlapped=False)
    llm = drafting(family, draft)
    with counted(llm) as seen:
        outputs, found, _ = run(llm, prompts, params, 5, is_overlapped=True)
    assert outputs == expected
    np.testing.assert_allclose(found, logprobs, atol=1e-5)
    proposed, accepted = np.sum(seen, axis=0)
    # A draft model does not know the penalties of its own drafts, nor where a text ends.
    assert accepted > 0.7 * proposed if draft == family else accepted < 0.2 * proposed


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


def test_control_a_draft_without_its_kv_is_often_wrong():
    prompts = [golden.prompt for golden in goldens("llama3")]

    def read_nothing(self, params, state, batch):
        lens = state.draft_lens.at[batch.slots].set(batch.ends)  # as if it had read them
        return state.replace(draft_lens=lens)

    with patch.object(DraftModel, "read", read_nothing):
        llm = drafting("llama3", "llama3", max_logprobs=3)
        with counted(llm) as seen:
            found = texts(llm, prompts, LONG)
    assert found == texts(tiny_engine("llama3"), prompts, LONG), "but the text is the model's"
    proposed, accepted = np.sum(seen, axis=0)
    assert accepted < 0.8 * proposed


def test_a_row_catches_up_on_tokens_that_it_read_without_drafts():
    """Its first drafts come later than its first passes, and are right."""
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


def test_two_devices_give_the_same_text():
    """Gemma has one KV head, which each device has, in the target's pages and in the draft's."""
    prompts = [golden.prompt for golden in goldens("gemma3")]
    llm = drafting("gemma3", "gemma3", tensor_parallel_size=2)
    with counted(llm) as seen:
        assert texts(llm, prompts, LONG) == texts(tiny_engine("gemma3"), prompts, LONG)
    proposed, accepted = np.sum(seen, axis=0)
    assert proposed == accepted > 0


def test_weights_are_replaced_without_the_drafts():
    """The text is the new weights' own, whatever the draft model still proposes."""
    prompts = [golden.prompt for golden in goldens("llama3")]
    config = {"method": "draft_model", "model": str(checkpoint("llama3")), "num_speculative_tokens": 3}
    plain = LLM(str(checkpoint("llama3")), **SMALL)
    llm = always(LLM(str(checkpoint("llama3")), speculative_config=config, **SMALL))
    changed = plain.parts.runner.params | {"final_norm": plain.parts.runner.params["final_norm"] * jnp.float32(-1)}
    for engine in (plain, llm):
        engine.update_weights(changed)
    with counted(llm) as seen:
        assert texts(llm, prompts, LONG) == texts(plain, prompts, LONG)
    proposed, accepted = np.sum(seen, axis=0)
    assert accepted < 0.5 * proposed


def test_a_model_that_cannot_draft_is_refused():
    options = {"method": "draft_model", "num_speculative_tokens": 3}
    for target, model, message in (
        ("llama3", "smollm2-135m", "the draft model has a vocabulary of 49152 tokens, the model one of"),
        ("mistral", "llama3", "all layers of the model have a window"),
    ):
        given = {"model": model if "smol" in model else str(checkpoint(model))}
        load = {"load_format": "dummy", "skip_tokenizer_init": True} if "smol" in model else {}
        with pytest.raises(ConfigError, match=message):
            LLM(str(checkpoint(target)), speculative_config=options | given, **SMALL | load)
