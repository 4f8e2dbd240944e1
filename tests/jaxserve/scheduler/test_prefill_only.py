"""Requests that draw nothing end when the results of their prompt are computed."""

import numpy as np
import pytest

from jaxserve.core.errors import RequestError
from jaxserve.core.token_deltas import NO_TOKEN
from tests.support.fakes.fake_engine import Driver, make_engine, make_request, make_scheduler, naive, naive_pooled
from tests.support.fakes.scheduler_laws import Watch


def run(engine, *requests):
    sequences = [engine.add(request)[0] for request in requests]
    deltas = list(engine.drain())
    return sequences, deltas


def test_nothing_is_drawn_and_the_end_is_reported():
    engine = make_engine()
    (sequence,), deltas = run(engine, make_request("a", 9, 0, prompt_logprobs=0))
    assert (sequence.token_ids, sequence.finish_reason) == ([], "length")
    reported = [delta for delta in deltas if len(delta)]
    assert len(reported) == 1
    assert (reported[0].sequences, reported[0].tokens.tolist(), reported[0].is_finished.tolist()) == (
        [sequence],
        [NO_TOKEN],
        [True],
    )


def test_no_row_of_it_samples_and_its_last_token_is_only_a_target():
    scheduler = make_scheduler(max_chunk_tokens=4)
    scheduler.add(make_request("a", 10, 0, prompt_logprobs=0, logprobs_start=6))
    plans = Driver(scheduler).steps(5)
    assert [plan.query_lens.tolist() for plan in plans] == [[4], [4], [1]]
    assert not any(plan.samples.any() for plan in plans)
    assert [plan.num_targets for plan in plans] == [0, 3, 1]
    assert not scheduler.has_work


def test_a_pooled_prompt_is_computed_to_its_end():
    scheduler = make_scheduler(max_chunk_tokens=4)
    scheduler.add(make_request("a", 9, 0, pooling="mean"))
    plans = Driver(scheduler).steps(5)
    assert [plan.query_lens.tolist() for plan in plans] == [[4], [4], [1]]
    assert not any(plan.bucket.is_decode for plan in plans)
    assert all(plan.is_pooled.all() for plan in plans)


@pytest.mark.parametrize("pooling", ["mean", "last"])
@pytest.mark.parametrize("limits", [{}, {"max_chunk_tokens": 1}, {"max_chunk_tokens": 7}, {"num_pages": 18}], ids=str)
def test_every_token_is_pooled_once(pooling, limits):
    engine = make_engine(**limits)
    watch = Watch(engine)
    texts = [make_request(f"text {i}", 11, 35, seed=i) for i in range(3)]
    pooled = [make_request(str(n), n, 0, seed=n, pooling=pooling) for n in (1, 2, 17, 40)]
    sequences, _ = run(engine, *texts, *pooled)
    for sequence in sequences[3:]:
        assert np.allclose(sequence.pooled, naive_pooled(sequence.request))
    assert [s.token_ids for s in sequences[:3]] == [naive(request)[0] for request in texts]
    if "num_pages" in limits:
        assert engine.scheduler.stats.num_preemptions > 0
    else:
        assert watch.num_tokens == 1 + 2 + 17 + 40 + 3 * (11 + 34)


def test_a_prompt_may_fill_the_context():
    engine = make_engine(max_model_len=64)
    (sequence,), _ = run(engine, make_request("a", 64, 0, prompt_logprobs=0))
    assert len(sequence.prompt_logprobs) == 64
    assert None not in sequence.prompt_logprobs[1:]


def test_a_prompt_of_one_token_ends():
    engine = make_engine()
    sequences, _ = run(engine, make_request("a", 1, 0, prompt_logprobs=0), make_request("b", 1, 0, pooling="last"))
    assert [s.finish_reason for s in sequences] == ["length"] * 2


def test_pooling_what_is_generated_is_refused():
    with pytest.raises(RequestError, match="max_tokens must be 0"):
        make_request("a", 4, 1, pooling="mean")


def test_log_probabilities_begin_where_they_are_asked():
    engine = make_engine()
    (sequence,), _ = run(engine, make_request("a", 12, 4, prompt_logprobs=2, logprobs_start=9))
    assert [entry is None for entry in sequence.prompt_logprobs] == [True] * 9 + [False] * 3
