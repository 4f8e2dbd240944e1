"""Rows whose tokens depend on the one before by rules of the host draw late, and advance in every step all the same."""

import time
from unittest.mock import patch

import numpy as np
import pytest

from jaxserve import SamplingParams
from jaxserve.core.buckets import MAX_ROUNDS
from jaxserve.engine.loop.multi_step_budget import MultiStepBudget
from jaxserve.scheduler.step import late_rows
from tests.support.golden_data import goldens
from tests.support.tiny_engines import drain, driven, submit, tiny_engine

OPTIONS = ({}, {"logprobs": 3}, {"presence_penalty": 0.5}, {"n": 2, "min_tokens": 9})
NUM_REQUESTS = 9


def settings(i: int) -> SamplingParams:
    return SamplingParams(temperature=0.8 * (i % 3 > 0), seed=i, max_tokens=16, ignore_eos=True, **OPTIONS[i % 4])


def run(llm, words, is_overlapped, num_rounds=1):
    """Tokens and log-probabilities of all samples, the number of steps, and (bucket, rows) of each late draw."""
    runner, late = llm.parts.runner, []
    original = runner.draw

    def draw(ticket, draws):
        late.append((ticket.bucket, len(draws.rows)))
        return original(ticket, draws)

    with patch.object(runner, "draw", draw), driven(llm, num_rounds, is_overlapped) as steps:
        for i in range(NUM_REQUESTS):
            prompt = goldens("llama3")[i % 3].prompt[: 10 + i]
            submit(llm, prompt, settings(i), bad_words=words[i] if words and i % 4 else ())
        sequences = list(llm.parts.engine.scheduler.state.sequences.values())
        drain(llm)
    logprobs = [(p.logprob, *p.top) for s in sequences for p in s.logprobs or []]
    return [s.token_ids for s in sequences], logprobs, len(steps), late


@pytest.fixture(scope="module")
def plain():
    return run(tiny_engine("llama3"), None, is_overlapped=True)


@pytest.fixture(scope="module")
def words(plain):
    """Of each request words of two and three tokens that its texts have without them."""
    firsts = list(dict.fromkeys(plain[0].index(tokens) for tokens in plain[0]))
    return [tuple(tuple(plain[0][s][at : at + 2 + at % 2]) for at in range(2, 13, 3)) for s in firsts]


@pytest.fixture(scope="module")
def expected(words):
    tokens, logprobs, _, late = run(tiny_engine("llama3"), words, is_overlapped=False)
    assert not late, "where each step is committed before the next is planned, all is known in time"
    return tokens, logprobs


@pytest.mark.thinned(1)
@pytest.mark.parametrize("options", [{}, {"tensor_parallel_size": 2}, {"enable_prefix_caching": True}], ids=str)
def test_texts_do_not_depend_on_when_a_row_draws(options, words, expected, plain):
    tokens, logprobs, num_steps, late = run(tiny_engine("llama3", **options), words, is_overlapped=True)
    assert tokens == expected[0]
    assert tokens != plain[0]
    np.testing.assert_allclose(logprobs, expected[1], atol=1e-5)
    assert num_steps == plain[2], "no row waits for a step"
    assert {bucket.is_decode for bucket, _ in late} == {True, False}
    assert max(count for _, count in late) > 5


def test_other_rows_draw_several_tokens_in_steps_with_late_rows(words, expected):
    llm, counts = tiny_engine("llama3"), []
    plan_step = llm.parts.engine.scheduler.schedule

    def schedule(*rounds):
        plan = plan_step(*rounds)
        if plan is not None and len(plan.late_rows) and plan.num_rounds > 1:
            counts.append((set(plan.max_tokens.tolist()), set(plan.max_tokens[plan.late_rows].tolist())))
        return plan

    with patch.object(llm.parts.engine.scheduler, "schedule", schedule):
        tokens, logprobs, *_ = run(llm, words, is_overlapped=True, num_rounds=5)
    assert tokens == expected[0]
    np.testing.assert_allclose(logprobs, expected[1], atol=1e-5)
    assert all(late == {1} and max(all_rows) > 1 for all_rows, late in counts)
    assert len(counts) > 1


def test_a_slow_host_leaves_time_for_rounds_of_other_rows(words, expected):
    llm = tiny_engine("llama3")
    scheduler = llm.parts.engine.scheduler
    with driven(llm, 1, is_overlapped=True) as rounds:
        llm.parts.engine.multi_step = MultiStepBudget(MAX_ROUNDS, MAX_ROUNDS)
        late_draw = scheduler.late_draw

        def slow(*args):
            time.sleep(0.1)  # a round takes a hundredth of it
            return late_draw(*args)

        with patch.object(scheduler, "late_draw", slow):
            sequences = [
                submit(llm, goldens("llama3")[0].prompt, SamplingParams(max_tokens=30, ignore_eos=True), **bans)
                for bans in ({"bad_words": words[1]}, {})
            ]
            drain(llm)
    assert max(rounds) > 2
    assert [len(sequence.token_ids) for sequence in sequences] == [30, 30]


def test_control_with_the_bans_of_the_token_before_texts_differ(words, expected):
    with patch.object(late_rows, "late_edits", lambda state, slots: ()):
        tokens, *_ = run(tiny_engine("llama3"), words, is_overlapped=True)
    assert tokens != expected[0]


def test_an_abort_before_its_late_draw_harms_nobody(words, expected):
    """The sequence has left its slot when its row draws."""
    llm = tiny_engine("llama3")
    engine = llm.parts.engine
    with driven(llm, 1, is_overlapped=True):
        prompts = [goldens("llama3")[i].prompt[: 10 + i] for i in (1, 2)]
        sequences = [submit(llm, prompts[i - 1], settings(i), bad_words=words[i]) for i in (1, 2)]
        for _ in range(4):
            engine.step()
        assert len(engine._steps[0].plan.late_rows) == 2
        engine.scheduler.abort(sequences[0].request.request_id)
        drain(llm)
    assert sequences[0].finish_reason == "abort"
    assert sequences[1].token_ids in expected[0]
