"""Scores are the prompt log-probabilities of separate calls, with sharing, chunking, preemption and other load."""

from contextlib import contextmanager

import numpy as np
import pytest

from jaxserve import SamplingParams
from jaxserve.core.errors import RequestError
from jaxserve.engine.tasks.score import score
from jaxserve.runner.fake.fake_model import FakeModel
from tests.support.fakes.fake_llm import fake_llm
from tests.support.golden_data import goldens
from tests.support.tiny_engines import submit, tiny_engine

TOLERANCE = 1e-5
# With fewer slots than pairs, a pair that gets no slot while its context's sequences run may compute it again.
CHUNKED = {"max_chunk_tokens": 7, "max_num_seqs": 16, "buckets": "16 32x16"}
WAYS = [("llama3", {}), ("gemma3", {}), ("gemma3", CHUNKED)]
SMALL = [
    ("llama3", {"num_pages": 11, "max_num_seqs": 4}),
    ("gemma3", {"num_pages": 26, "max_num_seqs": 4, "max_chunk_tokens": 8}),
]


def pairs_of(rng, num_contexts: int, longest: int = 70) -> list[tuple[list[int], list[int]]]:
    """Ragged contexts, each with one to six continuations; one context occurs twice, in different places."""
    contexts = [rng.integers(3, 320, rng.integers(1, longest)).tolist() for _ in range(num_contexts)]
    return [
        (context, rng.integers(3, 320, rng.integers(1, 9)).tolist())
        for context in [*contexts, contexts[0]]
        for _ in range(rng.integers(1, 7))
    ]


def score_on(llm, pairs):
    return score(llm.output_processor, llm.parts.input_processor, pairs)


def expected(llm, pairs) -> list[list[float]]:
    """The same by one call for each pair's whole prompt."""
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    outputs = [llm.generate([c + x], params, use_tqdm=False)[0] for c, x in pairs]
    return [
        [out.prompt_logprobs[len(c) + i][token].logprob for i, token in enumerate(x)]
        for out, (c, x) in zip(outputs, pairs, strict=True)
    ]


def check(outputs, pairs, wanted) -> None:
    for out, (context, continuation), logprobs in zip(outputs, pairs, wanted, strict=True):
        np.testing.assert_allclose(out.token_logprobs, logprobs, atol=TOLERANCE)
        assert out.logprob == pytest.approx(sum(logprobs), abs=TOLERANCE)
        assert (out.token_ids, out.num_context_tokens, out.text) == (continuation, len(context), None)


@contextmanager
def computed_tokens(llm):
    """A list that receives the number of tokens of each step."""
    engine, tokens = llm.parts.engine, []
    engine.observer = lambda record: tokens.append(record.num_tokens)
    try:
        yield tokens
    finally:
        engine.observer = None


@pytest.mark.thinned(1)
@pytest.mark.parametrize(("family", "options"), WAYS)
def test_scores_equal_those_of_separate_calls(family, options):
    llm, pairs = tiny_engine(family, **options), pairs_of(np.random.default_rng(1), 3)
    with computed_tokens(llm) as tokens:
        outputs = score_on(llm, pairs)
    num_contexts = len({tuple(c) for c, _ in pairs})
    once = sum(len(c) for c in {tuple(c) for c, _ in pairs})
    # Each context once, for each fork its last token again, and of each continuation all tokens but the last.
    assert sum(tokens) == once + sum(len(x) - 1 for _, x in pairs) + len(pairs) - num_contexts
    with computed_tokens(llm) as tokens:
        wanted = expected(llm, pairs)
    assert sum(tokens) > sum(len(c) + len(x) - 1 for c, x in pairs) > 2 * once  # control: nothing is shared
    check(outputs, pairs, wanted)
    assert llm.stats.num_pages_free == 299


@pytest.mark.parametrize(("family", "options"), SMALL)
def test_scores_among_texts_that_crowd_the_pool(family, options):
    """Preemption on either side; the texts are those of a run alone."""
    llm, pairs = tiny_engine(family, **options), pairs_of(np.random.default_rng(2), 3, longest=50)
    wanted, before = expected(llm, pairs), llm.stats.num_preemptions
    texts = [g for g in goldens(family) for _ in range(2)]
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    sequences = [submit(llm, g.prompt, params) for g in texts]
    check(score_on(llm, pairs), pairs, wanted)
    for _ in llm.parts.engine.drain():
        pass
    assert [s.token_ids for s in sequences] == [g.greedy[:24] for g in texts]
    assert llm.stats.num_preemptions > before
    assert llm.stats.num_pages_free == options["num_pages"] - 1


def test_only_the_greedy_continuation_is_greedy():
    llm, golden = tiny_engine("llama3"), goldens("llama3")[1]
    own = golden.greedy[:6]
    outputs = score_on(llm, [(golden.prompt, own), (golden.prompt, [*own[:5], own[5] + 1]), (golden.prompt, [own[1]])])
    assert [out.is_greedy for out in outputs] == [True, False, own[0] == own[1]]


class Blind(FakeModel):
    """Its logits are not finite; NaN has rank 1, as nothing is above it."""

    def logprob(self, prefix, token):
        return float("nan")


def test_nan_is_not_greedy():
    found = [fake_llm(kind(264)).score([([5], [7, 8])], use_tqdm=False)[0] for kind in (FakeModel, Blind)]
    assert [out.is_greedy for out in found] == [True, False]
    assert np.isnan(found[1].token_logprobs).all()


def test_one_token_after_one_token():
    llm = tiny_engine("llama3")
    check(score_on(llm, [([5], [7])]), [([5], [7])], expected(llm, [([5], [7])]))
    assert score_on(llm, []) == []


def test_a_pair_may_fill_the_context_and_no_more():
    llm = tiny_engine("llama3")
    (out,) = score_on(llm, [([5] * 100, [6] * 28)])
    assert len(out.token_logprobs) == 28
    with pytest.raises(RequestError, match=r"pair 1: .* 128 tokens"):
        score_on(llm, [([5], [6]), ([5] * 100, [6] * 29)])
    with pytest.raises(RequestError, match=r"pair 1: token id 320 .* outside"):
        score_on(llm, [([5], [6]), ([5], [320])])
    assert not llm.parts.engine.has_work


@pytest.mark.parametrize("num_steps", [1, 2, 3])
def test_an_interrupt_ends_its_own_pairs_only(num_steps, monkeypatch):
    llm, golden, calls = tiny_engine("llama3"), goldens("llama3")[1], []
    engine_step = llm.parts.engine.step
    text = submit(llm, golden.prompt, SamplingParams(temperature=0, max_tokens=24, ignore_eos=True))

    def step():
        calls.append(engine_step())
        if len(calls) > num_steps:
            raise KeyboardInterrupt
        return calls[-1]

    monkeypatch.setattr(llm.parts.engine, "step", step)
    with pytest.raises(KeyboardInterrupt):
        score_on(llm, pairs_of(np.random.default_rng(3), 5))
    monkeypatch.undo()
    for _ in llm.parts.engine.drain():
        pass
    assert text.token_ids == golden.greedy[:24]
    assert llm.stats.num_pages_free == 299


def test_scoring_does_not_change_what_unseeded_requests_draw():
    prompt, params = [4, 5, 6], SamplingParams(max_tokens=8, ignore_eos=True)
    llm = tiny_engine("llama3")
    processor = llm.parts.input_processor
    arrived = processor.num_arrived
    first = llm.generate([prompt], params, use_tqdm=False)
    processor.num_arrived = arrived
    score_on(llm, [([5], [7]), ([5], [8])])
    again = llm.generate([prompt], params, use_tqdm=False)
    assert first[0].outputs[0].token_ids == again[0].outputs[0].token_ids
