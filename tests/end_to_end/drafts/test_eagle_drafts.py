"""Drafts of an EAGLE-3 layer are those of the layer written out in NumPy."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve import LLM
from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.core.step_outcome import StepOutcome
from jaxserve.runner.step import step
from tests.support.drafting import DraftInTurns, always, counted, watched
from tests.support.eagle_drafts import LONG, NUM_DRAFTS, answers, eagle_engine, prompts, saved
from tests.support.golden_data import checkpoint
from tests.support.tiny_engines import SMALL, driven


@pytest.mark.thinned(1)
@pytest.mark.parametrize("topk", [1, 2])
def test_drafts_are_those_of_the_layer_written_out(naive, folder, topk):
    """Which drafts are accepted shows what features, positions and tokens each has read. Prompts are read in chunks."""
    llm = eagle_engine(folder, topk=topk)
    expected, num_accepted = answers(), list[int]()
    for prompt, answer in zip(prompts(), expected, strict=True):
        with driven(llm, 1, is_overlapped=False), counted(llm) as seen:  # how long steps are depends on their times
            (output,) = llm.generate([prompt], LONG, use_tqdm=False)
        assert output.outputs[0].token_ids == answer
        num_accepted.append(int(np.sum(seen, axis=0)[1]))
    wanted = [
        naive.num_accepted(prompt, answer, NUM_DRAFTS, topk) for prompt, answer in zip(prompts(), expected, strict=True)
    ]
    assert num_accepted == wanted
    assert sum(wanted) > 10
    # With the features of other tokens other drafts are accepted.
    shifted = replace(naive, draft=naive.draft | {"fuse": jnp.flip(naive.draft["fuse"], axis=1)})
    others = [
        shifted.num_accepted(prompt, answer, NUM_DRAFTS, topk)
        for prompt, answer in zip(prompts(), expected, strict=True)
    ]
    assert others != wanted


@pytest.mark.thorough
def test_tokens_of_a_shifted_vocabulary_are_seen(naive, folder, tmp_path):
    """A draft whose `d2t` is off by one proposes other tokens: the text is the same, and fewer drafts are accepted."""
    prompt, answer = prompts()[0], answers()[0]
    accepted = list[int]()
    for own in (folder, saved(tmp_path, replace(naive, vocabulary=naive.vocabulary + 1))):
        llm = eagle_engine(own, topk=1)
        with driven(llm, 1, is_overlapped=False), counted(llm) as seen:
            (output,) = llm.generate([prompt], LONG, use_tqdm=False)
        assert output.outputs[0].token_ids == answer
        accepted.append(int(np.sum(seen, axis=0)[1]))
    assert accepted[0] == naive.num_accepted(prompt, answer, NUM_DRAFTS, 1) > accepted[1]


@pytest.mark.thorough
@pytest.mark.parametrize("is_at_once", [True, False])
def test_drafts_after_decode_rounds_are_those_of_the_layer(is_at_once, naive, folder, monkeypatch):
    """Rounds that do not draft leave the KV and the feature of every token that they have read. is_at_once: all rounds
    are read afterwards, as on CPU; else each reads its own."""
    if not is_at_once:
        monkeypatch.setattr(step, "no_taps", lambda settings, layout: None)
    config = SpeculativeConfig(method="eagle3", model=folder, num_speculative_tokens=NUM_DRAFTS)
    llm = always(LLM(str(checkpoint("llama3")), speculative_config=config, **SMALL), DraftInTurns)
    total = 0
    for prompt, answer in zip(prompts(), answers(), strict=True):
        outcomes = list[StepOutcome]()
        with driven(llm, 3, is_overlapped=False), watched(llm, outcomes.append):
            llm.generate([prompt], LONG, use_tqdm=False)
        features, place = naive.features([*prompt, *answer]), 0
        assert any(outcome.drafts is None and outcome.num_rounds == 3 for outcome in outcomes)
        for outcome in outcomes:
            if outcome.drafts is None:
                place += int(outcome.num_tokens.sum())
                continue
            for found in outcome.drafts.num_accepted[0, : outcome.num_rounds].tolist():
                assert found == naive.num_accepted_at(prompt, answer, features, place, NUM_DRAFTS, 1)
                place, total = place + found + 1, total + found
        assert place == len(answer)
    assert total > 5
