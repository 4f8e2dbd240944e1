"""Other rules of acceptance in the engine: the same texts at temperature 0, and refusals."""

from dataclasses import replace

import numpy as np
import pytest

from jaxserve import SamplingParams
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.speculative_config import SpeculativeConfig
from tests.end_to_end.drafts.laws_of_texts import SKIP, engine_with_drafts
from tests.support.drafting import counted
from tests.support.eagle_drafts import LONG, answers, prompts
from tests.support.golden_data import checkpoint
from tests.support.tiny_engines import tiny_engine


@pytest.mark.thorough
@pytest.mark.parametrize("acceptance", ["rejection", "typical"])
def test_texts_at_temperature_0_are_those_without_drafts(acceptance):
    llm = engine_with_drafts(**SKIP, acceptance=acceptance)
    with counted(llm) as seen:
        outputs = llm.generate(prompts(), LONG, use_tqdm=False)
    assert [out.outputs[0].token_ids for out in outputs] == answers()
    proposed, accepted = np.sum(seen, axis=0)
    assert 0 < accepted < proposed


@pytest.mark.thorough
@pytest.mark.parametrize("acceptance", ["rejection", "typical"])
def test_penalties_and_several_texts_of_a_prompt_on_two_devices(acceptance):
    """At temperature 0, where every rule gives the texts of decoding alone."""
    params = replace(LONG, n=2, presence_penalty=0.5, repetition_penalty=1.2)
    plain = tiny_engine("llama3").generate(prompts(), params, use_tqdm=False)
    llm = engine_with_drafts(**SKIP, acceptance=acceptance, tensor_parallel_size=2)
    with counted(llm) as seen:
        outputs = llm.generate(prompts(), params, use_tqdm=False)
    assert [[one.token_ids for one in out.outputs] for out in outputs] == [
        [one.token_ids for one in out.outputs] for out in plain
    ]
    assert [out.outputs[0].token_ids for out in plain] != answers(), "penalties count"
    proposed, accepted = np.sum(seen, axis=0)
    assert 0 < accepted < proposed


@pytest.mark.thorough
def test_rejection_accepts_all_drafts_of_a_model_that_drafts_for_itself():
    options = {"method": "draft_model", "model": str(checkpoint("llama3")), "num_speculative_tokens": 3}
    llm = engine_with_drafts(**options, acceptance="rejection")
    params = SamplingParams(temperature=0.9, top_p=0.9, max_tokens=32, ignore_eos=True)
    with counted(llm) as seen:
        llm.generate(prompts() * 2, params, use_tqdm=False)
    proposed, accepted = np.sum(seen, axis=0)
    assert proposed > 50
    assert accepted >= proposed - 1  # the two laws are rounded differently


def test_rules_that_make_no_sense_are_refused():
    def error(**options):
        with pytest.raises(ConfigError) as caught:
            SpeculativeConfig(**{"method": "ngram", "num_speculative_tokens": 4} | options)
        return str(caught.value)

    assert "needs drafts that are drawn, of method='draft_model' or 'layer_skip'" in error(acceptance="rejection")
    of_both = {"method": "auto", "learned": "layer_skip", "skip_layers": [1], "acceptance": "rejection"}
    assert "has n-grams, too, which are not: use method='layer_skip', or acceptance='match'" in error(**of_both)
    medusa = of_both | {"learned": "medusa", "skip_layers": None, "model": "m"}
    assert "those of 'auto' are accepted as often" in error(**medusa)
    assert "acceptance='x' must be one of match, rejection, typical" in error(acceptance="x")
    assert "typical_alpha is an option of acceptance='typical', not of 'match'" in error(typical_alpha=0.5)
    assert "typical_threshold=2 must be a number from 0 to 1" in error(acceptance="typical", typical_threshold=2)
    assert "leave one of them out" in error(acceptance="typical", synthetic_acceptance=0.5)
