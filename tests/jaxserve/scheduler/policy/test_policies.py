"""Scheduling policies: admission and preemption follow the same order."""

import inspect

import pytest

from jaxserve.core.errors import RequestError
from jaxserve.core.options.policy_options import POLICIES
from jaxserve.core.options.scheduling_options import SchedulingOptions
from jaxserve.scheduler.policy.policies import POLICY_CLASSES, make_policy
from jaxserve.scheduler.policy.scheduling_policy import SchedulingPolicy
from tests.support.fakes.fake_engine import Driver, make_engine, make_request, make_scheduler


def add(scheduler, name, prompt=8, max_tokens=4, *, arrival_s=0.0, **scheduling):
    request = make_request(
        name, prompt, max_tokens, seed=len(name), arrival_s=arrival_s, scheduling=SchedulingOptions(**scheduling)
    )
    return scheduler.add(request)[0]


def started(scheduler, sequences, num_steps=60):
    """Names of requests in the order in which they get a slot."""
    driver, names = Driver(scheduler), []
    for _ in range(num_steps):
        driver.steps(1)
        names += [s.request.request_id for s in sequences if s.has_started and s.request.request_id not in names]
    return names


def test_every_policy_has_its_class_and_its_options():
    assert POLICIES.keys() == POLICY_CLASSES.keys()
    for policy, cls in POLICY_CLASSES.items():
        assert issubclass(cls, SchedulingPolicy)
        assert set(inspect.signature(cls).parameters) == set(POLICIES[policy])
        assert isinstance(make_policy(policy, priority_ageing_s=None, tenant_weights=None), cls)


def test_the_lower_priority_number_starts_first_and_equals_by_arrival():
    scheduler = make_scheduler(max_num_seqs=1, policy=make_policy("priority"))
    sequences = [add(scheduler, str(i), priority=priority) for i, priority in enumerate([3, 0, 3, -1, 0])]
    assert started(scheduler, sequences) == ["3", "1", "4", "0", "2"]


@pytest.mark.parametrize(("later_s", "first"), [(9.0, "urgent"), (11.0, "old")])
def test_waiting_outweighs_priority_with_time(later_s, first):
    scheduler = make_scheduler(max_num_seqs=1, policy=make_policy("priority", priority_ageing_s=5.0))
    sequences = [add(scheduler, "old", priority=2), add(scheduler, "urgent", priority=0, arrival_s=later_s)]
    assert started(scheduler, sequences)[0] == first


@pytest.mark.parametrize("policy", POLICY_CLASSES)
def test_victims_are_last_by_policy_and_the_first_is_never_one(policy):
    scheduler = make_scheduler(num_pages=18, max_num_seqs=4, policy=make_policy(policy))
    scheduling_options = [
        {"priority": priority, "tenant": tenant} for priority, tenant in [(5, "b"), (1, "a"), (1, "a"), (0, "b")]
    ]
    scheduling_options = [
        {n: v for n, v in s.items() if n in scheduler.state.policy.fields} for s in scheduling_options
    ]
    sequences = [add(scheduler, str(i), 12, 40, **scheduling) for i, scheduling in enumerate(scheduling_options)]
    expected = {"fcfs": "0123", "priority": "3120", "fair": "3120"}[
        policy
    ]  # the first sequence of each of two tenants precedes the others
    driver, preempted, key = Driver(scheduler), [], scheduler.state.policy.key
    for _ in range(160):
        before = {s: key(s) for s in sequences if s.slot >= 0 and not s.is_finished}
        driver.steps(1)
        gone = [s for s in before if s.slot < 0 and not s.is_finished]
        assert all(before[victim] > before[other] for victim in gone for other in before if other.slot >= 0)
        preempted += gone
    assert preempted
    assert sequences[int(expected[0])] not in preempted
    assert sequences[int(expected[-1])] in preempted
    assert all(s.finish_reason == "length" for s in sequences)


def test_a_preempted_sequence_returns_before_later_ones_of_its_priority():
    scheduler = make_scheduler(num_pages=20, max_num_seqs=2, policy=make_policy("priority"))
    add(scheduler, "first", 30, 20, priority=0)
    victim = add(scheduler, "victim", 30, 20, priority=1)
    driver = Driver(scheduler)
    driver.steps(14)
    assert scheduler.stats.num_preemptions == 1
    add(scheduler, "later", 4, 4, priority=1)
    assert scheduler.state.waiting.first() is victim


@pytest.mark.parametrize(
    ("policy", "mine", "other", "starts"),
    [
        ("priority", {}, {}, "other"),
        ("priority", {}, {"priority": 1}, "mine"),
        ("fair", {}, {}, "other"),
        ("fair", {}, {"priority": 1}, "mine"),
        ("fair", {"tenant": "a"}, {"tenant": "a"}, "other"),
        ("fair", {"tenant": "a"}, {"tenant": "b"}, "mine"),
    ],
)
def test_the_prefix_cache_chooses_among_equals_only(policy, mine, other, starts):
    """The other has a long cached prefix; with another priority or tenant it does not overtake for that."""
    engine = make_engine(prefix_eviction="lru", max_num_seqs=1, policy=make_policy(policy))
    prefix = list(range(1, 33))
    engine.add(make_request("cached", prefix, 2))
    for _ in engine.drain():
        pass
    engine.add(make_request("running", 4, 12, ignore_eos=True))
    engine.step()
    requests = (
        make_request("mine", 8, 2, scheduling=SchedulingOptions(**mine)),
        make_request("other", prefix, 2, scheduling=SchedulingOptions(**other)),
    )
    sequences = [engine.add(request)[0] for request in requests]
    while not any(sequence.has_started for sequence in sequences):
        engine.step()
    assert [s.request.request_id for s in sequences if s.has_started] == [starts]


@pytest.mark.parametrize(
    ("policy", "fields"), [("fcfs", ()), ("priority", ("priority",)), ("fair", ("priority", "tenant"))]
)
def test_each_policy_names_the_fields_that_it_uses(policy, fields):
    """Requests that set others are refused where they are made."""
    assert make_policy(policy).fields == fields


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("priority", 1.5),
        ("priority", True),
        ("priority", 2**63),
        ("priority", [1, 2]),
        ("tenant", ""),
        ("tenant", 5),
        ("tenant", "x" * 129),
        ("queue_timeout_s", 0),
        ("queue_timeout_s", float("inf")),
        ("deadline_s", -1.0),
        ("deadline_s", float("nan")),
        ("deadline_s", "soon"),
        ("deadline_s", True),
    ],
)
def test_a_bad_field_is_refused_by_name(name, value):
    with pytest.raises(RequestError, match=name) as caught:
        SchedulingOptions(**{name: value})
    assert caught.value.param == name
