"""The demo model's file, kept packed: greedy tokens and log-probabilities are those of transformers for the decoded
weights, also where prefixes come from the cache. `scripts/prove packed_tokens` runs a hundred prompts in more ways."""

import pytest

from jaxserve import LLM
from jaxserve.core.hardware.mesh import device_bytes
from scripts.proofs.packed_tokens.proof import file_bytes
from tests.support.real_model_goldens import check_greedy

pytestmark = pytest.mark.optimized

NAME = "smollm2-135m-instruct"


def test_tokens_of_packed_weights_equal_those_of_transformers(real_model):
    real_model(NAME)
    options = {"max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 128, "buckets": "8 128x8"}
    llm = LLM(NAME, dtype="float32", quantization="packed", **options)
    assert llm.parts.runner.settings.model.packing.name == "Q4_1, Q8_0"
    assert device_bytes(llm.parts.runner.params) == pytest.approx(file_bytes(NAME), rel=0.02)
    check_greedy(llm, NAME)
    assert llm.stats.num_cached_tokens == 0
    check_greedy(llm, NAME, 3)
    assert llm.stats.num_cached_tokens > 100
