"""`n` samples of one prompt compute it once: the first computes it, the others share its pages."""

import numpy as np
import pytest

from jaxserve.core.device_ops import Forks
from jaxserve.scheduler.queue_limits import QueueLoad
from tests.support.fakes.fake_engine import Driver, make_engine, make_request, make_scheduler, naive
from tests.support.fakes.scheduler_laws import Watch


@pytest.mark.parametrize("windows", [(None,), (5, None), (4,)])
@pytest.mark.parametrize("prompt_len", [1, 2, 4, 5, 8, 11])
def test_samples_are_forked_and_equal_those_that_run_alone(prompt_len, windows):
    engine = make_engine(windows)
    watch = Watch(engine, is_ample=True)
    request = make_request("a", prompt_len, 9, n=4)
    sequences = engine.add(request)
    for _ in engine.drain():
        pass
    assert watch.num_forks == 3
    assert [s.token_ids for s in sequences] == [naive(request, i)[0] for i in range(4)]
    assert len({tuple(s.token_ids) for s in sequences}) == 4
    # The prompt once; for each sample its tokens except the last; for each fork the last prompt token again.
    assert watch.num_tokens == prompt_len + 4 * 8 + 3


def test_a_fork_shares_full_pages_and_copies_the_one_with_the_last_prompt_token():
    scheduler = make_scheduler((None, 6), page_size=4)
    scheduler.add(make_request("a", 10, 9, n=2))
    _, plan = Driver(scheduler).steps(2)
    leader, fork = plan.slots.tolist().index(0), plan.slots.tolist().index(1)
    (forks,) = plan.ops_of(Forks)
    assert forks.src_slots.tolist() == [0]
    assert forks.dst_slots.tolist() == [1]
    # The whole table of group 0; in group 1 position 9 sees positions from 4 on.
    assert plan.tables[0][fork, :2].tolist() == plan.tables[0][leader, :2].tolist()
    copies = [plan.tables[0][fork, 2], plan.tables[1][fork, 2 - plan.first_pages[1, fork]]]
    assert forks.dst_pages.tolist() == copies
    assert forks.src_pages[0] == plan.tables[0][leader, 2]
    assert not set(copies) & set(np.concatenate([table[leader] for table in plan.tables]).tolist())
    assert (plan.tokens[fork], plan.starts[fork]) == (scheduler.state.occupant(1).tokens[9], 9)
    assert plan.samples[fork]


def test_samples_without_a_slot_fork_later_from_those_that_still_run():
    engine = make_engine(max_num_seqs=3)
    watch = Watch(engine)
    request = make_request("a", 6, 5, n=5)
    sequences = engine.add(request)
    for _ in engine.drain():
        pass
    assert watch.num_forks == 4
    assert [s.token_ids for s in sequences] == [naive(request, i)[0] for i in range(5)]


def test_samples_precede_later_requests():
    engine = make_engine(max_num_seqs=4, max_num_batched_tokens=64)
    watch = Watch(engine, is_ample=True)
    samples = engine.add(make_request("a", 20, 8, n=4))
    others = [engine.add(make_request(f"b{i}", 40, 8, seed=i))[0] for i in range(6)]
    ends = {}
    for _ in engine.drain():
        ends |= {s: watch.num_steps for s in [*samples, *others] if s.is_finished and s not in ends}
    assert max(ends[s] for s in samples) <= min(ends[s] for s in samples) + 1  # the first one starts one step earlier
    assert max(ends[s] for s in samples) < min(ends[s] for s in others)


def test_late_samples_with_penalties_compute_the_prompt_again_for_their_counts():
    engine = make_engine(max_num_seqs=3)
    watch = Watch(engine)
    sequences = engine.add(make_request("a", 6, 5, n=5, presence_penalty=1.0))
    for _ in engine.drain():
        pass
    assert all(s.is_finished for s in sequences)
    assert watch.num_forks == 2 + 1  # the fourth computes the prompt, and the fifth forks from it
    assert watch.num_tokens == 2 * 6 + 5 * 4 + 3


def test_samples_survive_the_end_of_the_first_before_they_fork():
    for num_steps in range(3):
        engine = make_engine(max_chunk_tokens=4)
        request = make_request("a", 10, 5, n=3)
        leader, *others = engine.add(request)
        for _ in range(num_steps):
            engine.step()
        engine.scheduler.finish(leader.sequence_id, "stop", keep_tokens=0)
        for _ in engine.drain():
            pass
        assert leader.token_ids == []
        assert [s.token_ids for s in others] == [naive(request, i)[0] for i in (1, 2)]


def test_abort_ends_all_samples_of_any_status():
    for num_steps in range(5):
        engine = make_engine(max_num_seqs=3)
        sequences = engine.add(make_request("a", 6, 20, n=5))
        for _ in range(num_steps):
            engine.step()
        engine.scheduler.abort("a")
        assert {s.finish_reason for s in sequences} == {"abort"}
        for _ in engine.drain():
            pass
        assert engine.scheduler.stats.num_pages_free == 199
        load = QueueLoad.of(engine.scheduler.state)
        assert load.num_waiting == load.num_running == 0
