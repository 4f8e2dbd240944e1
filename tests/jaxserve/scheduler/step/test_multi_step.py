"""Several tokens in one step: only while no sequence waits, as far as pages last, each sequence up to its own end."""

import numpy as np
import pytest

from tests.support.fakes.fake_engine import Driver, make_request, make_scheduler
from tests.support.fakes.scheduler_laws import check_pages

FIVE = 5  # the token that a Driver's rows draw


def decoding(scheduler, *requests):
    """A driver whose sequences have drawn their first token, and the sequences."""
    driver = Driver(scheduler, token=FIVE)
    sequences = [s for request in requests for s in scheduler.add(request)]
    plan = scheduler.schedule()
    driver.commit(plan)
    return driver, sequences


def test_every_row_draws_as_many_tokens_as_it_may():
    scheduler = make_scheduler()
    driver, (a, b) = decoding(scheduler, make_request("a", 4, 20), make_request("b", 6, 3))
    plan = scheduler.schedule(max_rounds=8)
    assert dict(zip(plan.slots.tolist(), plan.max_tokens.tolist(), strict=True)) == {a.slot: 8, b.slot: 2}
    deltas = driver.commit(plan)
    assert [s.num_tokens for s in (a, b)] == [4 + 9, 6 + 3]
    assert (b.finish_reason, a.finish_reason) == ("length", None)
    assert [d.sequence_id for d in deltas.sequences].count(a.sequence_id) == 8
    assert deltas.is_finished.sum() == 1
    check_pages(scheduler.state)


def test_steps_of_many_rounds_overlap():
    scheduler = make_scheduler()
    driver, (a,) = decoding(scheduler, make_request("a", 4, 20))
    first, second = scheduler.schedule(max_rounds=8), scheduler.schedule(max_rounds=8)
    assert (first.starts.tolist(), second.starts.tolist()) == ([4], [-1])
    assert second.tokens.tolist() == [-1]
    driver.commit(first)
    driver.commit(second)
    assert a.num_tokens == 4 + 17
    last = scheduler.schedule(max_rounds=8)
    assert last.max_tokens.tolist() == [3]


@pytest.mark.parametrize(
    "other",
    [
        {"request_id": "waits for a slot", "prompt": 3},
        {"request_id": "must see its tokens", "prompt": 3, "bad_words": ((1, 2),)},
    ],
    ids=lambda other: other["request_id"],
)
def test_one_token_a_step_while_another_sequence_needs_the_next(other):
    scheduler = make_scheduler(max_num_seqs=2)
    requests = [make_request("a", 4, 20), make_request("b", 4, 20)][: 1 if "bad_words" in other else 2]
    _, _ = decoding(scheduler, *requests, make_request(max_tokens=20, **other))
    plan = scheduler.schedule(max_rounds=8)
    assert plan.max_tokens.tolist() == [1] * plan.num_rows


@pytest.mark.parametrize(("max_hidden_rounds", "expected"), [(1, {"a": 1, "late": 1}), (4, {"a": 4, "late": 1})])
def test_others_draw_several_tokens_while_a_row_that_must_see_its_tokens_draws_one(max_hidden_rounds, expected):
    scheduler = make_scheduler()
    driver, sequences = decoding(scheduler, make_request("a", 4, 20), make_request("late", 4, 20, bad_words=((1, 2),)))
    first, second = (scheduler.schedule(max_rounds=8, max_hidden_rounds=max_hidden_rounds) for _ in range(2))
    for plan in (first, second):
        names = [scheduler.state.occupant(slot).request.request_id for slot in plan.slots.tolist()]
        assert dict(zip(names, plan.max_tokens.tolist(), strict=True)) == expected
    late = [names[row] for row in second.late_rows.tolist()]
    assert late == (["late"] if max_hidden_rounds > 1 else names), "with one token each all draw once, after the step"
    driver.commit(first)
    assert [s.num_tokens - 5 for s in sequences] == list(expected.values())


def test_rows_that_all_must_see_their_tokens_draw_one():
    scheduler = make_scheduler()
    decoding(scheduler, *(make_request(name, 4, 20, bad_words=((1, 2),)) for name in "ab"))
    assert scheduler.schedule(max_rounds=8, max_hidden_rounds=8).max_tokens.tolist() == [1, 1]


def test_a_chunk_of_a_prompt_takes_one_round():
    scheduler = make_scheduler(max_chunk_tokens=4)
    decoding(scheduler, make_request("a", 4, 20), make_request("long", 30, 5))
    for _ in range(6):
        plan = scheduler.schedule(max_rounds=8)
        assert plan.num_rounds == 1
        Driver(scheduler).commit(plan)


def test_the_last_token_of_a_prompt_that_is_scored_takes_one_round_for_all():
    """It draws nothing, and its row is not a decode row, although it has one token."""
    scheduler = make_scheduler(max_num_seqs=2, max_num_batched_tokens=8)
    driver, (_, scored) = decoding(
        scheduler, make_request("a", 4, 20), make_request("scored", 13, 0, prompt_logprobs=0)
    )
    driver.commit(scheduler.schedule())
    assert scored.num_tokens - 1 - scheduler.state.slot_table.num_scheduled[scored.slot] == 1
    plan = scheduler.schedule(max_rounds=8)
    assert (plan.num_decodes, plan.max_tokens.tolist()) == (2, [1, 1])
    assert plan.targets is not None


@pytest.mark.parametrize(("num_free", "num_rounds"), [(4, 8), (3, 4), (2, 4)])
def test_the_number_of_rounds_is_limited_by_free_pages(num_free, num_rounds):
    """Pages of 4, two prompts of 4: the next token takes a page each, enough for 4 rounds; more take another."""
    scheduler = make_scheduler()
    decoding(scheduler, make_request("a", 4, 40), make_request("b", 4, 40))
    scheduler.state.pool.allocate(scheduler.stats.num_pages_free - num_free)
    plan = scheduler.schedule(max_rounds=8)
    assert plan.max_tokens.tolist() == [num_rounds] * 2
    assert scheduler.stats.num_preemptions == 0


def test_tokens_after_the_end_are_dropped():
    scheduler = make_scheduler()
    driver, (a, b) = decoding(scheduler, make_request("a", 4, 20, stop_token_ids=[7]), make_request("b", 4, 20))
    plan = scheduler.schedule(max_rounds=4)
    tokens = np.full((2, 4), FIVE, np.int32)
    tokens[plan.slots.tolist().index(a.slot)] = [8, 7, 9, 9]
    is_bad = np.zeros((2, 4), bool)
    is_bad[plan.slots.tolist().index(b.slot), 3] = True
    deltas = driver.commit(plan, tokens=tokens, is_bad=is_bad)
    assert (a.token_ids, a.finish_reason, a.stop_reason) == ([FIVE, 8, 7], "stop", 7)
    assert (b.token_ids, b.finish_reason) == ([FIVE] * 4, "error")
    assert len(deltas) == 2 + 4
    assert scheduler.stats.num_pages_free == 199
