"""Rows with different proposers in one step: the text is that without drafts, and each row has its own drafts."""

from unittest.mock import patch

import numpy as np
import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.core.options.speculative_config import SpeculativeConfig
from tests.support.draft_laws import check_every_pair_of_features
from tests.support.drafting import always
from tests.support.eagle_drafts import LONG, answers, prompts, random_draft, saved
from tests.support.golden_data import checkpoint
from tests.support.tiny_engines import tiny_engine

NUM_DRAFTS = 4


def drafting(family, options, **engine):
    config = SpeculativeConfig(method="auto", num_speculative_tokens=NUM_DRAFTS, **options)
    return always(tiny_engine(family, speculative_config=config, **engine))


@pytest.mark.thorough
def test_every_pair_of_features_gives_the_same_text(tmp_path):
    """Looked-up chains and trees of an EAGLE layer, which rows have in turns, on two devices."""
    options = {"learned": "eagle3", "model": saved(tmp_path, random_draft("gemma3", 4)), "eagle_topk": 2}
    proposed, accepted = check_every_pair_of_features("gemma3", drafting("gemma3", options, tensor_parallel_size=2))
    assert 5 < accepted < proposed


@pytest.mark.thorough
def test_each_row_has_the_drafts_of_its_proposer():
    """The model that drafts for itself is always right; n-grams are wrong now and then, in the same steps."""
    llm = drafting("llama3", {"learned": "draft_model", "model": str(checkpoint("llama3"))})
    proposed, accepted, numbers = np.zeros(2, int), np.zeros(2, int), list[set[int]]()
    speculation = llm.parts.engine.scheduler.state.speculation
    assert speculation is not None

    def record(plan, outcome, device_s):
        if outcome.drafts is not None:
            numbers.append(set(plan.proposers.tolist()))
            np.add.at(proposed, plan.proposers, outcome.drafts.num_proposed.sum(axis=1))
            np.add.at(accepted, plan.proposers, outcome.drafts.num_accepted.sum(axis=1))

    with patch.object(speculation, "observe", record):
        outputs = llm.generate(prompts() * 2, LONG, use_tqdm=False)
    assert [out.outputs[0].token_ids for out in outputs] == answers() * 2
    assert {0, 1} in numbers
    assert 0 < accepted[0] < proposed[0]
    assert 0 < accepted[1] == proposed[1]


def test_wrong_options_are_named():
    def error(**options):
        with pytest.raises(ConfigError) as caught:
            SpeculativeConfig(num_speculative_tokens=4, **{"method": "auto"} | options)
        return str(caught.value)

    assert "method='auto' needs learned, one of draft_model, layer_skip, medusa, eagle3, not None" in error()
    assert "has no use for learned, not 'medusa'" in error(method="ngram", learned="medusa")
    assert "method='auto' needs model=\"…\", the EAGLE-3 draft" in error(learned="eagle3")
    assert "eagle_topk is an option of method='eagle3', not of 'auto'" in error(
        learned="medusa", model="x", eagle_topk=2
    )
    config = SpeculativeConfig(method="auto", num_speculative_tokens=4, learned="layer_skip", skip_layers=(1,))
    ngrams, learned = config.parts
    assert (ngrams.method, ngrams.skip_layers, learned.method, learned.skip_layers) == (
        "ngram",
        None,
        "layer_skip",
        (1,),
    )
