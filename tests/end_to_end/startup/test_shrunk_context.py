"""LongRoPE's table is chosen for the context that the pool leaves."""

import jax
import numpy as np

from jaxserve import LLM
from tests.support.golden_data import FOLDER, checkpoint, goldens
from tests.support.tiny_engines import SMALL

OPTIONS = SMALL | {"max_model_len": None, "page_size": 16}


def error_to(logits: np.ndarray, num_pages: int) -> float:
    """The largest difference of an engine's scores, with so many pages, from those of these logits."""
    prompt = goldens("phi3")[1].prompt
    llm = LLM(str(checkpoint("phi3")), **(OPTIONS | {"num_pages": num_pages}))
    (out,) = llm.score([(prompt[:1], prompt[1:])], use_tqdm=False)
    expected = np.asarray(jax.nn.log_softmax(logits, axis=-1))[np.arange(len(prompt) - 1), prompt[1:]]
    return float(np.abs(np.array(out.token_logprobs) - expected).max())


def test_a_pool_that_holds_the_original_context_takes_the_short_factors():
    """Phi-3's golden has an original context of 32: two pages without the scratch page."""
    short = np.load(FOLDER / "phi3" / "goldens.npz")["short17"]
    assert error_to(short, num_pages=3) < 1e-4
    assert error_to(goldens("phi3")[1].logits, num_pages=4) < 1e-4
    assert error_to(short, num_pages=4) > 1e-4
