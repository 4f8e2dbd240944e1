"""Drafts of Medusa heads change no token, and come from the state after each row's last token."""

import json
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import LLM, SamplingParams
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.engine.build.medusa_folder import write_medusa
from jaxserve.models.config.medusa_heads import UNKNOWN
from jaxserve.models.transformer import logits
from jaxserve.runner.device_state import SlotSizes, init_slots
from jaxserve.runner.drafts.proposer import DraftRows
from tests.support.draft_laws import check_every_pair_of_features
from tests.support.drafting import always, counted, greedy_and_sampled
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import SMALL, driven, rescheduled, tiny_engine

NUM_HEADS = 3
CHAIN = ((1.0,),) * NUM_HEADS  # each head's likeliest guess alone


def heads_in(folder, family, scale, shares=UNKNOWN[:NUM_HEADS]):
    """A folder of random heads; scale 0: as training begins, their guesses are those of the model's head."""
    size, random = tiny_engine(family).parts.model.d_model, np.random.default_rng(0)
    block = scale * random.standard_normal((NUM_HEADS, size, size))
    write_medusa(folder, {"block": block, "bias": np.zeros((NUM_HEADS, size))}, shares, family)
    return str(folder)


def drafting(folder, family, num_drafts, **options):
    config = SpeculativeConfig(method="medusa", model=folder, num_speculative_tokens=num_drafts)
    return always(tiny_engine(family, speculative_config=config, **options))


@pytest.mark.thorough
def test_every_pair_of_features_gives_the_same_text(tmp_path):
    """Trees of random guesses, on two devices, with windows."""
    llm = drafting(heads_in(tmp_path, "gemma3", 0.05), "gemma3", 12, tensor_parallel_size=2)
    proposed, accepted = check_every_pair_of_features("gemma3", llm)
    assert 5 < accepted < proposed


def test_untrained_heads_repeat_the_last_token_and_are_right_where_the_text_does(tmp_path):
    """They see the state from which the last token was drawn. Were it that of another token, as after accepted drafts,
    other drafts would be accepted."""
    llm = drafting(heads_in(tmp_path, "llama3", 0, CHAIN), "llama3", NUM_HEADS)
    params, wanted = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True), list[int]()
    for golden in goldens("llama3"):
        (plain,) = tiny_engine("llama3").generate([golden.prompt * 2], params, use_tqdm=False)
        with driven(llm, 1, is_overlapped=False), counted(llm) as seen:  # how long steps are depends on their times
            (output,) = llm.generate([golden.prompt * 2], params, use_tqdm=False)
        assert output.outputs[0].token_ids == plain.outputs[0].token_ids
        wanted.append(num_repeated(plain.outputs[0].token_ids))
        assert np.sum(seen, axis=0)[1] == wanted[-1]
    assert min(wanted) < 10
    assert max(wanted) > 30


@pytest.mark.thorough
def test_preemption_and_chunks_change_nothing(tmp_path):
    llm = drafting(heads_in(tmp_path, "llama3", 0, CHAIN), "llama3", NUM_HEADS)
    num_pages = 1 + llm.parts.spec.programs.groups.max_sequence_pages(SMALL["max_model_len"], chunk=7)
    llm = always(rescheduled(llm, "hits", num_pages=num_pages, max_chunk_tokens=7))
    prompts = [golden.prompt * 2 for golden in goldens("llama3")] * 2
    params = greedy_and_sampled(len(prompts))
    expected = tiny_engine("llama3").generate(prompts, params, use_tqdm=False)
    with counted(llm) as seen:
        outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [out.outputs[0].token_ids for out in outputs] == [out.outputs[0].token_ids for out in expected]
    assert np.sum(seen, axis=0)[1] > 20
    assert llm.stats.num_preemptions > 0


def num_repeated(text):
    """Drafts that are accepted where each is the last token."""
    place, num_accepted = 0, 0
    while place + 1 < len(text):
        most = min(NUM_HEADS, len(text) - place - 2)  # the last token of all is drawn after the drafts
        run = next((i for i in range(most) if text[place + 1 + i] != text[place]), max(most, 0))
        num_accepted, place = num_accepted + run, place + run + 1
    return num_accepted


def test_untrained_heads_have_exactly_the_logits_of_the_models_head(tmp_path):
    llm = drafting(heads_in(tmp_path, "llama3", 0, CHAIN), "llama3", NUM_HEADS)
    proposer, params = llm.parts.spec.programs.settings.proposer, llm.parts.runner.weights
    hidden = jnp.asarray(np.random.default_rng(1).standard_normal((5, proposer.heads.d_model)), jnp.float32)
    for num_heads in (1, NUM_HEADS):
        repeated = jnp.repeat(hidden, num_heads, axis=0)
        own = logits(llm.parts.runner.settings.context, llm.parts.model, params, repeated)
        np.testing.assert_array_equal(proposer.head_logits(params, hidden, num_heads), own)
    # A chain of fewer drafts than heads has no logits of the others.
    slots = jnp.arange(5, dtype=jnp.int32)
    rows = DraftRows(slots, slots, slots, jnp.int32(5), slots, (), (), cast(Any, None))
    state = init_slots(SlotSizes(4, own.shape[1], proposer.heads.d_model, jnp.float32))
    for num_drafts in range(1, NUM_HEADS + 1):
        program = str(jax.make_jaxpr(partial(proposer.propose, num_drafts=num_drafts))(params, state, rows))
        assert f"f32[{5 * num_drafts},{own.shape[1]}]" in program
        assert (f"f32[{5 * NUM_HEADS},{own.shape[1]}]" in program) == (num_drafts == NUM_HEADS)


def test_heads_that_do_not_fit_are_refused(tmp_path):
    def error(folder):
        options = {"method": "medusa", "model": str(folder), "num_speculative_tokens": 3}
        with pytest.raises(ConfigError) as caught:
            LLM(str(checkpoint("llama3")), speculative_config=options, **SMALL)
        return str(caught.value)

    assert "must be a folder with one safetensors file" in error(tmp_path)
    other = tmp_path / "other"
    write_medusa(other, {"block": np.zeros((1, 8, 8)), "bias": np.zeros((1, 8))}, CHAIN[:1], "x")
    assert "the Medusa heads take hidden states of 8 numbers, the model's have" in error(other)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"guess_shares": [[2.0]]}))
    assert "guess_shares must list numbers from 0 to 1" in error(other)
    write_medusa(other, {"block": np.zeros((1, 8, 4)), "bias": np.zeros((1, 8))}, CHAIN[:1], "x")
    assert "0.0.linear.weight has shape (8, 4) instead of (4, 4)" in error(other)
