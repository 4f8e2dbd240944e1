"""A real model equals transformers, on eight of the hundred prompts of `scripts/prove parity`, and on eight of the two
hundred pairs of `scripts/prove score`. Its engine takes 256 tokens and computes in float32."""

from jaxserve import LLM, SamplingParams
from scripts.proofs import parity, score


def check_greedy(llm: LLM, name: str, num_prompts: int = 8) -> None:
    """num_prompts: the longest of the eight."""
    prompts, golden = parity.read_goldens(name)
    short = sorted((i for i, prompt in enumerate(prompts) if len(prompt) <= 200), key=lambda i: len(prompts[i]))
    chosen = short[:: len(short) // 7][-num_prompts:]
    assert len(chosen) == num_prompts
    assert len(prompts[chosen[-1]]) > 100
    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, logprobs=0)
    outputs = llm.generate([prompts[i] for i in chosen], params, use_tqdm=False)
    expected = {key: golden[key][chosen, :16] for key in ("tokens", "logprobs", "gaps")}
    result = parity.compare([output.outputs[0] for output in outputs], expected)
    assert not result["faults"]
    assert result["equal"] >= num_prompts - 1
    assert result["logprob_error"] < parity.tolerances(golden)[0]


def check_scores(llm: LLM, name: str) -> None:
    pairs, logprobs, gaps = score.read_goldens(name)
    outputs = llm.score(pairs[:8], use_tqdm=False)
    result = score.compare(outputs, logprobs[:8], gaps[:8])
    assert result["tokens"] > 32
    assert result["error"] < score.TOLERANCE
    assert not result["faults"]
    assert any((gap == 0).all() for gap in gaps[:8])  # greedy continuations are among them
    out_of_place = score.compare(outputs, [tokens[::-1] for tokens in logprobs[:8]], gaps[:8])  # control
    assert out_of_place["error"] > score.TOLERANCE
