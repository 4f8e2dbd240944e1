"""The law of texts that each rule of acceptance promises."""

import pytest

from tests.end_to_end.drafts.laws_of_texts import SKIP, counts_of_texts, engine_with_drafts, p_of_one_law
from tests.support.tiny_engines import tiny_engine


@pytest.mark.thorough
def test_rejection_keeps_the_law_of_texts_and_accepts_more():
    plain, _ = counts_of_texts(tiny_engine("llama3"), 0)
    matched = counts_of_texts(engine_with_drafts(**SKIP), 10_000)[1]
    rejection, accepted = counts_of_texts(engine_with_drafts(**SKIP, acceptance="rejection"), 20_000)
    assert p_of_one_law(plain, rejection) > 1e-4
    assert accepted > matched
    # The control: texts of other laws differ.
    warmer, _ = counts_of_texts(tiny_engine("llama3"), 30_000, temperature=5.0)
    assert p_of_one_law(plain, warmer) < 1e-6


@pytest.mark.thorough
def test_typical_acceptance_accepts_what_is_likely_enough():
    """Each of three candidates, where matching accepts the one that is drawn."""
    matched = counts_of_texts(engine_with_drafts(**SKIP), 10_000)[1]
    options = {"acceptance": "typical", "typical_threshold": 0.02, "typical_alpha": 0.02}
    assert counts_of_texts(engine_with_drafts(**SKIP, **options), 30_000)[1] > 2 * matched > 0
