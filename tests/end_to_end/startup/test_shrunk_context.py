"""LongRoPE's table is chosen for the context that the pool leaves."""

import jax
import numpy as np
import pytest

from jaxserve import LLM
from tests.support.golden_data import FOLDER, checkpoint, goldens
from tests.support.tiny_engines import SMALL

PROMPT = goldens("phi3")[1].prompt
OPTIONS = SMALL | {"max_model_len": None, "page_size": 16}


def scores(num_pages: int) -> np.ndarray:
    """Log-probabilities of a golden prompt's tokens, by an engine with so many pages."""
    llm = LLM(str(checkpoint("phi3")), **(OPTIONS | {"num_pages": num_pages}))
    (out,) = llm.score([(PROMPT[:1], PROMPT[1:])], use_tqdm=False)
    return np.array(out.token_logprobs)


def error_to(logits: np.ndarray, scores: np.ndarray) -> float:
    """The largest difference from the scores that these logits give."""
    expected = np.asarray(jax.nn.log_softmax(logits, axis=-1))[np.arange(len(PROMPT) - 1), PROMPT[1:]]
    return float(np.abs(scores - expected).max())


@pytest.mark.thorough
def test_a_pool_that_holds_the_original_context_takes_the_short_factors():
    """Phi-3's golden has an original context of 32: two pages without the scratch page."""
    short = np.load(FOLDER / "phi3" / "goldens.npz")["short17"]
    assert error_to(short, scores(num_pages=3)) < 1e-4
    longer = scores(num_pages=4)
    assert error_to(goldens("phi3")[1].logits, longer) < 1e-4
    assert error_to(short, longer) > 1e-4
