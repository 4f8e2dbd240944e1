"""Gemma equals transformers. The demo model: `tests/end_to_end/api/test_text.py`. What becomes of KV pages: tests of
tiny models, and `scripts/prove kv`."""

import numpy as np
import pytest

from jaxserve import LLM
from jaxserve.core.outputs import Logprob
from scripts.proofs.parity import compare, read_goldens
from tests.support.real_model_goldens import check_greedy, check_scores

pytestmark = pytest.mark.optimized

NAME = "gemma-3-270m"


@pytest.fixture(scope="module")
def llm(real_model):
    real_model(NAME)
    options = {"max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 128, "num_pages": 420}
    return LLM(NAME, dtype="float32", buckets="8 128x8", **options)


def test_greedy_tokens_and_logprobs_equal_transformers(llm):
    check_greedy(llm, NAME)


def test_scores_equal_transformers(llm):
    check_scores(llm, NAME)


def test_the_comparison_notices_a_wrong_token():
    """Control: one changed token far from a tie is detected."""
    _, golden = read_goldens("smollm2-135m-instruct")
    row = int(np.argmax(golden["gaps"].min(axis=1)))

    class Output:
        token_ids = golden["tokens"][row].tolist()
        logprobs = None

    Output.token_ids[10] += 1
    Output.logprobs = [{t: Logprob(float(lp))} for t, lp in zip(Output.token_ids, golden["logprobs"][row], strict=True)]
    result = compare([Output], {key: golden[key][[row]] for key in ("tokens", "logprobs", "gaps")})
    assert [fault["token"] for fault in result["faults"]] == [10]
