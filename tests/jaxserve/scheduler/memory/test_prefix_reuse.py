"""Prefix cache in the scheduler: what sequences leave there, and which goes first; the fuzz covers taking over."""

import numpy as np
import pytest

from jaxserve.core.device_ops import CachedPrefix
from jaxserve.scheduler.step.start_waiting import MAX_OVERTAKEN
from tests.support.fakes.fake_engine import MODEL, make_engine, make_request, naive
from tests.support.fakes.scheduler_laws import Watch


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(1, MODEL.vocab_size, length).tolist()


class Spy:
    """A runner that records the plans it passes on."""

    def __init__(self, runner):
        self.runner, self.plans = runner, []

    def submit(self, plan):
        self.plans.append(plan)
        return self.runner.submit(plan)

    def draw(self, ticket, late):
        return self.runner.draw(ticket, late)

    def collect(self, ticket):
        return self.runner.collect(ticket)


def run(engine, *requests):
    sequences = [sequence for request in requests for sequence in engine.add(request)]
    watch = Watch(engine)
    for _ in engine.drain():
        watch.check()
    engine.runner = watch.runner
    return sequences


def test_a_prompt_is_computed_once_except_its_last_token():
    engine = make_engine(prefix_eviction="lru")
    run(engine, make_request("a", prompt_of(16)))
    (again,) = run(engine, make_request("b", prompt_of(16), max_tokens=1))
    assert again.num_cached_tokens == 12  # the last of four pages has the last token, whose logits are needed
    (longer,) = run(engine, make_request("c", [*prompt_of(16), 5], max_tokens=1))
    assert longer.num_cached_tokens == 16


def test_concurrent_prompts_end_with_one_copy_of_their_shared_pages():
    engine = make_engine(prefix_eviction="lru")
    requests = [make_request(str(i), [*prompt_of(20), 30 + i, 31 + i], max_tokens=40) for i in range(6)]
    for request in requests:
        engine.add(request)
    for _ in range(4):
        engine.step()
    tables = engine.scheduler.state.slot_table.page_tables[0]
    assert len(np.unique(tables[:6, :5])) == 5
    assert len(np.unique(tables[:6, 5])) == 6
    for _ in engine.drain():
        pass


def test_an_aborted_sequence_leaves_whole_pages_only():
    engine = make_engine(prefix_eviction="lru", max_chunk_tokens=10)
    engine.add(make_request("a", prompt_of(30)))
    for _ in range(3):
        engine.step()
    engine.scheduler.abort("a")
    for _ in engine.drain():
        pass
    state = engine.scheduler.state
    (again,) = run(engine, make_request("b", prompt_of(30)))
    assert again.num_cached_tokens in (8, 20, 28)
    assert again.num_cached_tokens % 4 == 0
    assert again.token_ids == naive(again.request)[0]
    assert state.pool.num_referenced == 0


def test_a_failed_sequence_leaves_nothing():
    engine = make_engine(prefix_eviction="lru")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(engine.runner.model), "draw", lambda *_: None)
        (failed,) = run(engine, make_request("a", prompt_of(16)))
    assert failed.finish_reason == "error"
    assert engine.scheduler.stats.num_pages_cached == 0
    (again,) = run(engine, make_request("b", prompt_of(16)))
    assert again.num_cached_tokens == 0


def test_penalties_count_tokens_that_are_not_computed():
    engine = make_engine(prefix_eviction="lru")
    run(engine, make_request("a", prompt_of(16)))
    engine.runner = spy = Spy(engine.runner)
    engine.add(make_request("b", [*prompt_of(16), 3], frequency_penalty=0.5))
    for _ in engine.drain():
        pass
    (prefix,) = [prefix for plan in spy.plans for prefix in plan.ops_of(CachedPrefix)]
    assert prefix.tokens.tolist() == prompt_of(16)
    assert prefix.prompt_len == 17


def test_a_longer_cached_prefix_goes_first_but_overtakes_a_limited_number_of_times():
    engine = make_engine(prefix_eviction="lru", max_num_seqs=1)
    shared = prompt_of(12)
    run(engine, make_request("first", shared))
    order = []
    engine.add(make_request("other", prompt_of(12, seed=1), max_tokens=1))
    sequences = {"other": engine.scheduler.state.waiting.first()}
    for i in range(20):
        sequences |= {str(i): engine.add(make_request(str(i), [*shared, 50 + i], max_tokens=1))[0]}
    while engine.has_work:
        engine.step()
        order += [name for name, s in sequences.items() if s.is_finished and name not in order]
    assert order.index("other") == MAX_OVERTAKEN
    assert [int(name) for name in order if name != "other"] == list(range(20))
