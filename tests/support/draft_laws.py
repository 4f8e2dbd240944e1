"""What holds of drafts of every kind."""

import numpy as np

from jaxserve import LLM, SamplingParams
from tests.end_to_end.engine.test_overlap_and_multi_step import FEATURES, pairwise, run
from tests.support.drafting import counted
from tests.support.golden_data import goldens
from tests.support.tiny_engines import tiny_engine

ROWS = pairwise(FEATURES | {"repetition_penalty": (1.0, 1.3)})


def check_every_pair_of_features(family: str, llm: LLM) -> tuple[int, int]:
    """Assert that texts and log-probabilities are those without drafts, for every pair of features, in prompts that
    repeat themselves; returns the numbers of proposed and accepted drafts."""
    prompts = [(goldens(family)[i % 3].prompt * 3)[: 24 + i] for i in range(len(ROWS))]
    params = [SamplingParams(max_tokens=12 + 5 * (i % 4), seed=i, **row) for i, row in enumerate(ROWS)]
    expected, logprobs, _ = run(tiny_engine(family), prompts, params, 1, is_overlapped=False)
    with counted(llm) as seen:
        outputs, found, _ = run(llm, prompts, params, 5, is_overlapped=True)
    assert outputs == expected
    np.testing.assert_allclose(found, logprobs, atol=2e-5)  # two devices add in another order
    proposed, accepted = np.sum(seen, axis=0)
    return int(proposed), int(accepted)
