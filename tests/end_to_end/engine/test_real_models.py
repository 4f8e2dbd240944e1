"""The real models equal transformers: on eight of the hundred prompts of `scripts/prove parity`, and on eight of the
two hundred pairs of `scripts/prove score`. What becomes of KV pages: tests of tiny models, and `scripts/prove kv`."""

from functools import cache

import numpy as np
import pytest

from jaxserve import LLM, SamplingParams
from scripts.proofs import score
from scripts.proofs.parity import LOGPROB_TOLERANCE, compare, read_goldens

pytestmark = pytest.mark.optimized

OPTIONS = {"dtype": "float32", "max_model_len": 512, "max_num_seqs": 8, "max_num_batched_tokens": 128}
OPTIONS |= {"buckets": "8 128x8"}
CASES = [
    ("smollm2-135m-instruct", {}),
    ("gemma-3-270m", {"num_pages": 420}),
]


@cache
def engine(name: str) -> LLM:
    return LLM(name, **OPTIONS, **dict(CASES)[name])


@pytest.mark.parametrize("name", dict(CASES))
def test_greedy_tokens_and_logprobs_equal_transformers(real_model, name):
    real_model(name)
    prompts, golden = read_goldens(name)
    short = sorted((i for i, prompt in enumerate(prompts) if len(prompt) <= 200), key=lambda i: len(prompts[i]))
    chosen = short[:: len(short) // 7][-8:]
    assert len(chosen) == 8
    assert len(prompts[chosen[-1]]) > 100
    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, logprobs=0)
    outputs = engine(name).generate([prompts[i] for i in chosen], params, use_tqdm=False)
    result = compare(
        [o.outputs[0] for o in outputs], {key: golden[key][chosen, :16] for key in ("tokens", "logprobs", "gaps")}
    )
    assert not result["faults"]
    assert result["equal"] >= 7
    assert result["logprob_difference"] < LOGPROB_TOLERANCE


@pytest.mark.parametrize("name", dict(CASES))
def test_scores_equal_transformers(real_model, name):
    real_model(name)
    pairs, logprobs, gaps = score.read_goldens(name)
    outputs = engine(name).score(pairs[:8], use_tqdm=False)
    result = score.compare(outputs, logprobs[:8], gaps[:8])
    assert result["tokens"] > 32
    assert result["error"] < score.TOLERANCE
    assert not result["faults"]
    assert any((gap == 0).all() for gap in gaps[:8])  # greedy continuations are among them
    out_of_place = score.compare(outputs, [tokens[::-1] for tokens in logprobs[:8]], gaps[:8])  # control
    assert out_of_place["error"] > score.TOLERANCE


def test_the_comparison_notices_a_wrong_token():
    """Control: one changed token far from a tie is detected."""
    _, golden = read_goldens("smollm2-135m-instruct")
    row = int(np.argmax(golden["gaps"].min(axis=1)))

    class Output:
        token_ids = golden["tokens"][row].tolist()
        logprobs = None

    Output.token_ids[10] += 1
    from jaxserve.core.outputs import Logprob

    Output.logprobs = [{t: Logprob(float(lp))} for t, lp in zip(Output.token_ids, golden["logprobs"][row], strict=True)]
    result = compare([Output], {key: golden[key][[row]] for key in ("tokens", "logprobs", "gaps")})
    assert [fault["token"] for fault in result["faults"]] == [10]
