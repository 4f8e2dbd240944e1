"""Continuous batching under a token budget: the tokens of each sequence in each step."""

import numpy as np
import pytest

from jaxserve.core.errors import ConfigError, RequestError
from tests.support.fakes.fake_engine import Driver, make_engine, make_request, make_scheduler, naive
from tests.support.fakes.scheduler_laws import Watch


@pytest.mark.parametrize("windows", [(None,), (8, None)])
@pytest.mark.parametrize("chunk", [1, 7, 16, 64, None])
def test_chunks_of_any_size_give_the_same_tokens(chunk, windows):
    engine = make_engine(windows, max_num_batched_tokens=64, max_chunk_tokens=chunk)
    watch = Watch(engine, is_ample=True)
    requests = [make_request(str(i), 1 + 9 * i % 50, 1 + 5 * i % 12, seed=i) for i in range(20)]
    sequences = [engine.add(request)[0] for request in requests]
    for _ in engine.drain():
        pass
    assert [s.token_ids for s in sequences] == [naive(request)[0] for request in requests]
    # Without preemption each known token except the last is computed once.
    assert watch.num_tokens == sum(s.num_tokens - 1 for s in sequences)


def test_a_decode_gets_one_token_in_every_step_with_any_prompt():
    scheduler = make_scheduler(max_num_seqs=4, max_num_batched_tokens=8)
    driver = Driver(scheduler)
    for i in range(2):
        scheduler.add(make_request(f"decode {i}", 2, 40))
    driver.steps(2)
    for i in range(6):
        scheduler.add(make_request(f"prompt {i}", 30, 2))
    plans = driver.steps(24)
    for plan in plans:
        assert plan.num_tokens <= 8
        assert plan.query_lens[np.isin(plan.slots, [0, 1])].tolist() == [1, 1]
    assert any(plan.num_tokens == 8 for plan in plans)


def test_rows_of_one_token_come_first():
    scheduler = make_scheduler()
    driver = Driver(scheduler)
    scheduler.add(make_request("a", 6, 5))
    driver.steps(1)
    scheduler.add(make_request("long", 9, 5))
    scheduler.add(make_request("short", 1, 5))
    (plan,) = driver.steps(1)
    assert plan.query_lens.tolist() == [1, 1, 9]
    assert plan.num_decodes == 2
    assert plan.slots.tolist() == [2, 0, 1]  # of decode rows, the shorter context first


def test_tokens_in_flight_are_sent_as_minus_one():
    scheduler = make_scheduler()
    driver = Driver(scheduler, token=5)
    scheduler.add(make_request("a", [11, 12, 13], 8))
    prompt, in_flight = driver.steps(2)
    assert (prompt.tokens.tolist(), prompt.starts.tolist(), prompt.samples.tolist()) == ([11, 12, 13], [0], [True])
    assert (in_flight.tokens.tolist(), in_flight.starts.tolist()) == ([-1], [-1])
    driver.commit(in_flight)
    known = scheduler.schedule()
    assert (known.tokens.tolist(), known.starts.tolist()) == ([5], [4])


def test_only_the_last_chunk_of_a_prompt_samples():
    scheduler = make_scheduler(max_chunk_tokens=4)
    scheduler.add(make_request("a", 10, 8))
    plans = Driver(scheduler).steps(4)
    assert [plan.query_lens.tolist() for plan in plans] == [[4], [4], [2], [1]]
    assert [plan.samples.tolist() for plan in plans] == [[False], [False], [True], [True]]
    assert [plan.starts.tolist() for plan in plans] == [[0], [4], [8], [-1]]


def test_a_step_uses_the_bucket_that_fits_it():
    scheduler = make_scheduler()
    scheduler.add(make_request("a", 10, 8))
    mixed, decode = Driver(scheduler).steps(2)
    assert not mixed.bucket.is_decode
    assert decode.bucket.is_decode
    assert mixed.bucket.num_columns >= mixed.tables[0].shape[1] == 3


def test_plans_are_int32_throughout():
    scheduler = make_scheduler((8, None))
    scheduler.add(make_request("a", 10, 8, prompt_logprobs=0, n=2))
    for plan in Driver(scheduler).steps(3):
        arrays = [plan.slots, plan.epochs, plan.query_lens, plan.starts, plan.tokens, plan.sampling, plan.first_pages]
        assert {a.dtype for a in [*arrays, *plan.tables]} == {np.dtype(np.int32)}
        assert plan.samples.dtype == bool
        assert plan.targets is None or plan.targets.dtype == np.int32


def test_requests_start_in_the_order_of_their_arrival():
    scheduler = make_scheduler(max_num_seqs=2, max_num_batched_tokens=16)
    prompts = [[i] * (3 + 5 * i % 7) for i in range(1, 9)]
    for i, prompt in enumerate(prompts):
        scheduler.add(make_request(str(i), prompt, 2))
    started = []
    for plan in Driver(scheduler).steps(30):
        offsets = np.cumsum(plan.query_lens) - plan.query_lens
        started += plan.tokens[offsets[plan.starts == 0]].tolist()
    assert started == [prompt[0] for prompt in prompts]


def test_a_slot_is_used_again_in_the_first_schedule_after_its_commit():
    scheduler = make_scheduler(max_num_seqs=1)
    scheduler.add(make_request("a", 4, 1))
    scheduler.add(make_request("b", 4, 1))
    driver = Driver(scheduler)
    (first,) = driver.steps(1)
    assert scheduler.schedule() is None  # `a` ends with the token in flight, and `b` has no slot yet
    driver.commit(first)
    assert scheduler.schedule().slots.tolist() == first.slots.tolist()


def test_at_most_one_step_is_in_flight_while_the_next_is_planned():
    scheduler = make_scheduler()
    scheduler.add(make_request("a", 4, 8))
    scheduler.schedule()
    scheduler.schedule()
    with pytest.raises(RuntimeError, match="in flight"):
        scheduler.schedule()


def test_steps_are_committed_in_order():
    scheduler = make_scheduler()
    scheduler.add(make_request("a", 4, 8))
    scheduler.schedule()
    second = scheduler.schedule()
    with pytest.raises(ValueError, match="step 0 is next"):
        Driver(scheduler).commit(second)


def test_a_request_id_in_use_is_refused():
    scheduler = make_scheduler()
    scheduler.add(make_request("a", 4))
    with pytest.raises(RequestError, match="in use"):
        scheduler.add(make_request("a", 4))
    assert len(scheduler.state.waiting) == 1


@pytest.mark.parametrize(
    ("limits", "param"),
    [({"num_pages": 16}, "num_pages"), ({"max_num_batched_tokens": 7}, "max_num_batched_tokens")],
)
def test_limits_under_which_a_sequence_could_starve_are_refused(limits, param):
    with pytest.raises(ConfigError, match=param) as caught:
        make_scheduler(**limits)
    assert caught.value.param == param


def test_the_smallest_pool_serves_the_longest_sequence():
    engine = make_engine((None, 8), num_pages=1 + 16 + 8, max_num_batched_tokens=8, max_chunk_tokens=8)
    request = make_request("a", 30, 34)
    (sequence,) = engine.add(request)
    for _ in engine.drain():
        pass
    assert (sequence.token_ids, sequence.finish_reason) == naive(request)
    with pytest.raises(ConfigError, match="takes 25 pages"):
        make_engine((None, 8), num_pages=24, max_num_batched_tokens=8, max_chunk_tokens=8)
