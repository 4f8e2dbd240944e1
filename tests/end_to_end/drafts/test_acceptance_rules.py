"""Other rules of acceptance in the engine: the same texts at temperature 0, and the law that each rule promises."""

from collections import Counter
from functools import cache

import numpy as np
import pytest
from jax.scipy.special import gammaincc

from jaxserve import SamplingParams
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.speculative_config import SpeculativeConfig
from tests.support.drafting import always, counted
from tests.support.eagle_drafts import LONG, answers, prompts
from tests.support.golden_data import checkpoint
from tests.support.tiny_engines import tiny_engine

NUM_TEXTS, NUM_ROWS = 480, 8
SKIP = {"method": "layer_skip", "skip_layers": (1,), "num_speculative_tokens": 3}


def drafting(**options):
    return always(tiny_engine("llama3", speculative_config=SpeculativeConfig(**options)))


@pytest.mark.parametrize("acceptance", ["rejection", "typical"])
def test_texts_at_temperature_0_are_those_without_drafts(acceptance):
    llm = drafting(**SKIP, acceptance=acceptance)
    with counted(llm) as seen:
        outputs = llm.generate(prompts(), LONG, use_tqdm=False)
    assert [out.outputs[0].token_ids for out in outputs] == answers()
    proposed, accepted = np.sum(seen, axis=0)
    assert 0 < accepted < proposed


def test_rejection_accepts_all_drafts_of_a_model_that_drafts_for_itself():
    options = {"method": "draft_model", "model": str(checkpoint("llama3")), "num_speculative_tokens": 3}
    llm = drafting(**options, acceptance="rejection")
    params = SamplingParams(temperature=0.9, top_p=0.9, max_tokens=32, ignore_eos=True)
    with counted(llm) as seen:
        llm.generate(prompts() * 2, params, use_tqdm=False)
    proposed, accepted = np.sum(seen, axis=0)
    assert proposed > 50
    assert accepted >= proposed - 1  # the two laws are rounded differently


@cache
def counts_of_texts(llm, first_seed, temperature=0.5):
    """Of texts of four tokens, each of the three likeliest; and the share of accepted drafts."""
    prompt, found, drafts = prompts()[1][:3], Counter[tuple[int, ...]](), np.zeros(2, int)
    for first in range(first_seed, first_seed + NUM_TEXTS, NUM_ROWS):  # while requests wait, no row drafts
        common = {"temperature": temperature, "top_k": 3, "max_tokens": 4, "ignore_eos": True}
        params = [SamplingParams(**common, seed=first + i) for i in range(NUM_ROWS)]
        with counted(llm) as seen:
            outputs = llm.generate([prompt] * NUM_ROWS, params, use_tqdm=False)
        drafts += np.sum(seen, axis=0, dtype=int) if seen else 0
        found.update(tuple(out.outputs[0].token_ids) for out in outputs)
    return found, drafts[1] / max(drafts[0], 1)


def p_of_one_law(one, other):
    """Of the two-sample chi-square test; rare texts share a cell."""
    texts = sorted(one.keys() | other.keys())
    table = np.array([[counts.get(text, 0) for text in texts] for counts in (one, other)], float)
    rare = table.sum(axis=0) < 10
    table = np.concatenate([table[:, ~rare], table[:, rare].sum(axis=1, keepdims=True)], axis=1)
    table = table[:, table.sum(axis=0) > 0]
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True) / table.sum()
    statistic = ((table - expected) ** 2 / expected).sum()
    return float(gammaincc((table.shape[1] - 1) / 2, statistic / 2))


def test_rejection_keeps_the_law_of_texts_and_accepts_more():
    plain, _ = counts_of_texts(tiny_engine("llama3"), 0)
    matched = counts_of_texts(drafting(**SKIP), 10_000)[1]
    rejection, accepted = counts_of_texts(drafting(**SKIP, acceptance="rejection"), 20_000)
    assert p_of_one_law(plain, rejection) > 1e-4
    assert accepted > matched
    # The control: texts of other laws differ.
    warmer, _ = counts_of_texts(tiny_engine("llama3"), 30_000, temperature=5.0)
    assert p_of_one_law(plain, warmer) < 1e-6


def test_typical_acceptance_accepts_what_is_likely_enough():
    """Each of three candidates, where matching accepts the one that is drawn."""
    matched = counts_of_texts(drafting(**SKIP), 10_000)[1]
    options = {"acceptance": "typical", "typical_threshold": 0.02, "typical_alpha": 0.02}
    assert counts_of_texts(drafting(**SKIP, **options), 30_000)[1] > 2 * matched > 0


def test_rules_that_make_no_sense_are_refused():
    def error(**options):
        with pytest.raises(ConfigError) as caught:
            SpeculativeConfig(**{"method": "ngram", "num_speculative_tokens": 4} | options)
        return str(caught.value)

    assert "needs drafts that are drawn, of method='draft_model' or 'layer_skip'" in error(acceptance="rejection")
    assert "acceptance='x' must be one of match, rejection, typical" in error(acceptance="x")
    assert "typical_alpha is an option of acceptance='typical', not of 'match'" in error(typical_alpha=0.5)
    assert "typical_threshold=2 must be a number from 0 to 1" in error(acceptance="typical", typical_threshold=2)
    assert "leave one of them out" in error(acceptance="typical", synthetic_acceptance=0.5)
