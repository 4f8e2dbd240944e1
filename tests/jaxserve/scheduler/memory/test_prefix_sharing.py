"""Requests with a shared prefix compute it once, with any number of slots, chunks and pages."""

import numpy as np
import pytest

from jaxserve.core.errors import RequestError
from tests.support.fakes.fake_engine import make_engine, make_request, naive, naive_logprobs
from tests.support.fakes.scheduler_laws import Watch


def continuations(context_len: int, count: int, seed: int = 0, name: str = "a"):
    """Requests that score continuations of 2 to 6 tokens after one context."""
    rng = np.random.default_rng(seed)
    context = rng.integers(1, 100, context_len).tolist()
    return [
        make_request(
            f"{name}{i}",
            context + rng.integers(1, 100, 2 + i % 5).tolist(),
            max_tokens=0,
            logprobs_start=context_len,
            prompt_logprobs=0,
        )
        for i in range(count)
    ]


def own_len(request) -> int:
    """Tokens that a request computes in addition to its context: its own except the last, which is only a target."""
    return len(request.prompt_token_ids) - request.logprobs_start - 1


def check_scores(sequences) -> None:
    for sequence in sequences:
        start = sequence.request.logprobs_start
        assert sequence.finish_reason == "length"
        got = [entry.logprob for entry in sequence.prompt_logprobs[start:]]
        assert np.allclose(got, naive_logprobs(sequence.tokens.tolist(), start))


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"max_chunk_tokens": 7},
        {"max_num_seqs": 2},
        {"max_num_seqs": 5, "max_num_batched_tokens": 9},
        {"windows": (5, None)},
        {"windows": (4,), "max_num_seqs": 3},
        {"page_size": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("context_len", [1, 4, 40])
def test_a_context_is_computed_once_for_any_number_of_continuations(context_len, limits):
    engine = make_engine(**limits)
    watch = Watch(engine)
    requests = continuations(context_len, 50)
    sequences = engine.scheduler.add_sharing(requests, context_len)
    for _ in engine.drain():
        pass
    check_scores(sequences)
    # Each fork computes the context's last token again.
    assert watch.num_tokens == context_len + sum(map(own_len, requests)) + 49
    assert watch.num_forks == 49


def test_without_sharing_it_is_computed_by_each():
    """Control: the same requests, added one by one."""
    engine = make_engine()
    watch = Watch(engine)
    requests = continuations(40, 50)
    check_scores_of = [engine.add(request)[0] for request in requests]
    for _ in engine.drain():
        pass
    check_scores(check_scores_of)
    assert watch.num_forks == 0
    assert watch.num_tokens == 50 * 40 + sum(map(own_len, requests))


def test_several_contexts_at_once_are_each_computed_once():
    engine = make_engine((6, None), num_pages=400)
    watch = Watch(engine)
    groups = [continuations(10 + 5 * g, 4, seed=g, name=f"{g}.") for g in range(9)]
    sequences = [s for g, group in enumerate(groups) for s in engine.scheduler.add_sharing(group, 10 + 5 * g)]
    for _ in engine.drain():
        pass
    check_scores(sequences)
    assert watch.num_tokens == sum(10 + 5 * g + sum(map(own_len, group)) + 3 for g, group in enumerate(groups))


@pytest.mark.parametrize("context_len", [5, 16, 60])
def test_fifty_contexts_are_each_computed_once_in_few_slots(context_len):
    """Slots stay free for deferred requests before later contexts get them, so they find the pages of theirs."""
    limits = {"max_num_seqs": 32, "max_num_batched_tokens": 512, "max_model_len": 128, "num_pages": 2000}
    engine = make_engine(**limits)
    watch = Watch(engine)
    groups = [continuations(context_len, 4, seed=g, name=f"{g}.") for g in range(50)]
    sequences = [s for group in groups for s in engine.scheduler.add_sharing(group, context_len)]
    for _ in engine.drain():
        watch.check()
    check_scores(sequences)
    assert watch.num_tokens == sum(context_len + sum(map(own_len, group)) + 3 for group in groups)


def test_more_continuations_than_slots_block_no_other_request():
    """They are deferred for all slots while their context is computed, and run in the order of arrival."""
    engine = make_engine(max_num_seqs=4, max_chunk_tokens=6, num_pages=400)
    watch = Watch(engine)
    requests = continuations(40, 30)
    before, after = make_request("before", 5, 20, seed=1), make_request("after", 5, 20, seed=2)
    (first,) = engine.add(before)
    scored = engine.scheduler.add_sharing(requests, 40)
    (last,) = engine.add(after)
    for _ in engine.drain():
        watch.check()
    check_scores(scored)
    assert [first.token_ids, last.token_ids] == [naive(before)[0], naive(after)[0]]
    assert watch.num_tokens == 40 + sum(map(own_len, requests)) + 29 + 5 + 19 + 5 + 19


def test_texts_with_a_shared_prefix_equal_those_of_lone_runs():
    engine = make_engine((9, None))
    watch = Watch(engine)
    rng = np.random.default_rng(1)
    context = rng.integers(1, 100, 21).tolist()
    requests = [make_request(str(i), context + [i + 1] * i, 7, seed=i) for i in range(6)]
    sequences = engine.scheduler.add_sharing(requests, 21)
    for _ in engine.drain():
        pass
    assert [s.token_ids for s in sequences] == [naive(request)[0] for request in requests]
    assert watch.num_forks == 5


@pytest.mark.parametrize("num_steps", range(6))
def test_another_request_computes_the_context_if_the_first_is_aborted(num_steps):
    engine = make_engine(max_chunk_tokens=6, max_num_seqs=4)
    watch = Watch(engine)
    requests = continuations(20, 12)
    sequences = engine.scheduler.add_sharing(requests, 20)
    for _ in range(num_steps):
        engine.step()
    engine.scheduler.abort("a0")
    for _ in engine.drain():
        watch.check()
    check_scores([s for s in sequences if s.finish_reason != "abort"])
    assert sum(s.finish_reason == "abort" for s in sequences) <= 1
    assert watch.num_tokens <= 2 * 20 + sum(map(own_len, requests)) + 11
    assert engine.scheduler.stats.num_pages_free == 199


def test_a_tiny_pool_preempts_and_keeps_every_score():
    """Texts are generated concurrently with the scores until pages run out."""
    engine = make_engine((8, None), num_pages=42, max_num_seqs=6, max_chunk_tokens=7)
    texts = [make_request(f"text {i}", 12, 40, seed=i) for i in range(3)]
    generated = [engine.add(request)[0] for request in texts]
    scored = [s for g in range(6) for s in engine.scheduler.add_sharing(continuations(17, 5, seed=g, name=f"{g}."), 17)]
    for _ in engine.drain():
        pass
    check_scores(scored)
    assert [s.token_ids for s in generated] == [naive(request)[0] for request in texts]
    assert engine.scheduler.stats.num_preemptions > 0


def test_requests_with_results_of_the_shared_tokens_compute_them():
    """Log-probabilities of the context, and hidden states pooled over it, need its computation."""
    engine = make_engine()
    watch = Watch(engine)
    context = list(range(1, 31))
    kinds = [{"prompt_logprobs": 0}, {"prompt_logprobs": 0}, {"pooling": "mean"}, {"pooling": "last"}]
    requests = [make_request(str(i), [*context, i], 0, **kind) for i, kind in enumerate(kinds)]
    sequences = engine.scheduler.add_sharing(requests, 30)
    for _ in engine.drain():
        pass
    assert watch.num_forks == 0
    assert watch.num_tokens == 30 + 30 + 31 + 31
    assert all(None not in s.prompt_logprobs[1:] for s in sequences[:2])


@pytest.mark.parametrize("shared_len", [0, 4, 7])
def test_prompts_that_do_not_share_as_many_tokens_are_refused(shared_len):
    engine = make_engine()
    requests = [make_request("a", [1, 2, 3, 4, 5], 0), make_request("b", [1, 2, 3, 9, 5, 6, 7], 0)]
    with pytest.raises(RequestError, match=f"do not share {shared_len} tokens"):
        engine.scheduler.add_sharing(requests, shared_len)
    with pytest.raises(RequestError, match="'a' is in use"):
        engine.scheduler.add_sharing([requests[0], requests[0]], 3)
    assert not engine.has_work
