"""Fair shares: a tenant with few requests is served nearly as if another tenant did not flood the engine."""

from functools import cache

import pytest

from jaxserve.core.options.scheduling_options import SchedulingOptions
from jaxserve.scheduler.policy.fair import FairShares
from jaxserve.scheduler.policy.policies import make_policy
from tests.support.fakes.fake_engine import Driver, make_request, make_scheduler
from tests.support.fakes.two_tenants import FLOODS, QUIET_PROMPTS, TwoTenants

COUNT = len(QUIET_PROMPTS)


@cache
def bounds_s():
    """Twice the quiet tenant's time to first token when it is alone, plus two steps, one for each request."""
    return [2 * wait_s + 2 for wait_s in TwoTenants(make_policy("fair"), flood=None).run(COUNT)]


def late(waits_s):
    return [wait_s > bounds_s()[i % COUNT] for i, wait_s in enumerate(waits_s)]


@pytest.mark.parametrize("flood", FLOODS)
def test_the_quiet_tenant_waits_little_in_any_flood(flood):
    for seed in range(2):
        simulation = TwoTenants(FairShares(), FLOODS[flood], seed)
        assert not any(late(simulation.run(2 * COUNT)))
        assert (
            sum(s.num_tokens for s in simulation.floods if s.is_finished) > 4 * simulation.clock.now_s
        )  # the flood is served too


@pytest.mark.parametrize("flood", FLOODS)
def test_first_come_first_served_makes_it_wait_long(flood):
    """Control: a policy can violate the bound."""
    assert all(late(TwoTenants(make_policy("fcfs"), FLOODS[flood]).run(2)))


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_tenants_that_always_wait_are_served_by_weight(weight):
    policy = FairShares(tenant_weights={"heavy": weight})
    scheduler = make_scheduler(policy=policy, max_num_seqs=8)
    driver, sequences = Driver(scheduler), {"heavy": [], "light": []}
    for step in range(400):
        for tenant, own in sequences.items():
            request = make_request(
                f"{tenant} {step}", 1 + step % 12, 9, seed=step, scheduling=SchedulingOptions(tenant=tenant)
            )
            own += scheduler.add(request)
        driver.steps(1)
    heavy, light = (sum(s.num_tokens + len(s.token_ids) for s in own if s.has_started) for own in sequences.values())
    assert heavy / light == pytest.approx(weight, rel=0.1)


def test_idle_time_earns_no_credit():
    """A returning tenant is served together with the other, without credit for the time in which it was idle."""
    policy = FairShares()
    scheduler = make_scheduler(policy=policy, max_num_seqs=4)
    driver = Driver(scheduler)
    for i in range(60):
        scheduler.add(make_request(f"steady {i}", 4, 8, seed=i, scheduling=SchedulingOptions(tenant="steady")))
    driver.steps(40)
    for i in range(20):
        scheduler.add(make_request(f"back {i}", 4, 8, seed=i, scheduling=SchedulingOptions(tenant="back")))
    waiting = list(scheduler.state.waiting)
    driver.steps(60)
    started = [s.request.scheduling.tenant for s in waiting if s.has_started]
    assert started.count("back") == pytest.approx(started.count("steady"), abs=2)
    assert started.count("back") > 8


def test_a_recomputed_token_is_not_charged_again():
    scheduler = make_scheduler(num_pages=20, max_num_seqs=2, policy=FairShares())
    for i, tenant in enumerate("ab"):
        scheduler.add(make_request(tenant, 30, 30, seed=i, scheduling=SchedulingOptions(tenant=tenant)))
    (a, b), driver = scheduler.state.sequences.values(), Driver(scheduler)
    tenants = {s: scheduler.state.policy.waiting.of(s) for s in (a, b)}
    lifts = {s: tenant.served for s, tenant in tenants.items()}
    driver.steps(110)
    assert scheduler.stats.num_preemptions > 0
    assert a.is_finished
    assert b.is_finished
    assert [tenants[s].served - lifts[s] for s in (a, b)] == [30 + 2 * 30] * 2
