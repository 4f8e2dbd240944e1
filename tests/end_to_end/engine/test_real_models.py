"""The real models equal transformers: on eight of the hundred prompts of `scripts/prove parity`, and on eight of the
two hundred pairs of `scripts/prove score`."""

from functools import cache

import numpy as np
import pytest

from jaxserve import LLM, SamplingParams
from scripts.proofs import score
from scripts.proofs.parity import LOGPROB_TOLERANCE, compare, read_goldens
from tests.support.tiny_engines import rescheduled

pytestmark = pytest.mark.optimized

OPTIONS = {"dtype": "float32", "max_model_len": 512, "max_num_seqs": 8, "max_num_batched_tokens": 128}
OPTIONS |= {"host_kv_cache_bytes": 2**29, "buckets": "8 128x8"}
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


@pytest.mark.parametrize("name", ["smollm2-135m-instruct"])  # windowed models: test_host_tier.py
def test_tokens_are_the_same_whatever_becomes_of_pages(real_model, name):
    """On six of the hundred prompts of `scripts/prove kv`, found in the cache, preempted, and brought back."""
    real_model(name)
    prompts, golden = read_goldens(name)
    chosen = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))[50:56]
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=0)
    wanted = {key: golden[key][chosen, :24] for key in ("tokens", "logprobs", "gaps")}
    num_groups = engine(name).parts.spec.programs.groups.num_groups
    small = {"max_model_len": 96, "num_pages": 7 * num_groups + 1}
    ways = {
        "found": rescheduled(engine(name), "hits", num_host_pages=0),
        "computed again": rescheduled(engine(name), None, num_host_pages=0, **small),
        "swapped": rescheduled(engine(name), "hits", **small),
    }
    for way, llm in ways.items():
        for _ in range(1 + (way == "found")):
            outputs = llm.generate([prompts[i] for i in chosen], params, use_tqdm=False)
            result = compare([output.outputs[0] for output in outputs], wanted)
            assert not result["faults"], way
            assert result["equal"] >= 5, way
            assert result["logprob_difference"] < LOGPROB_TOLERANCE, way
        assert (llm.stats.num_cached_tokens > 0) == (way != "computed again")
        assert (llm.stats.num_preemptions > 0) == (way != "found")
        assert (llm.stats.num_loaded > 0) == (way == "swapped")


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
