"""No request starves, whatever others send: random adversaries, and policies without ageing as controls."""

from unittest.mock import patch

import numpy as np
import pytest

from jaxserve.core.options.scheduling_options import SchedulingOptions
from jaxserve.scheduler.policy import tenant_queues
from jaxserve.scheduler.policy.fair import FairShares
from jaxserve.scheduler.policy.policies import ByPriority
from jaxserve.scheduler.policy.scheduling_policy import SchedulingPolicy
from jaxserve.scheduler.policy.waiting_queue import WaitingQueue
from tests.support.fakes.fake_engine import Driver, make_request, make_scheduler

NUM_STEPS = 250
AGEING_S = 2.0
VICTIM = 5  # its priority; adversaries have lower numbers, which go first


class StrictPriority(SchedulingPolicy):
    """Control: a policy without ageing."""

    fields = ("priority",)

    def __init__(self):
        self.waiting = WaitingQueue(self.key)

    def key(self, sequence):
        return sequence.request.scheduling.priority, sequence.sequence_id


class Adversary:
    """Keeps the queue full of random requests that all precede the victim's by priority."""

    def __init__(self, policy, seed, **limits):
        self.random = np.random.default_rng(seed)
        self.scheduler = make_scheduler(policy=policy, max_num_seqs=4, **limits)
        self.driver, self.num_added, self.now_s = Driver(self.scheduler), 0, 0.0
        self.most, self.longest = int(self.random.integers(2, 12)), int(self.random.integers(2, 30))

    def add(self, prompt, max_tokens, **scheduling):
        self.num_added += 1
        options = {
            "seed": self.num_added,
            "arrival_s": self.now_s,
            "scheduling": SchedulingOptions(**scheduling),
            "ignore_eos": True,
        }
        return self.scheduler.add(make_request(str(self.num_added), prompt, max_tokens, **options))[0]

    def step(self, **scheduling):
        while len(self.scheduler.state.waiting) < self.most:
            own = {"priority": int(self.random.integers(-3, VICTIM))} | scheduling
            self.add(int(self.random.integers(1, self.longest)), int(self.random.integers(1, self.longest)), **own)
        self.driver.steps(1)
        self.now_s += 1


def wait_among_priorities(policy, seed, **limits):
    """Steps until the victim starts, NUM_STEPS if it does not, and the requests that started before it although it had
    aged enough to precede them."""
    adversary = Adversary(policy, seed, **limits)
    for _ in range(5):
        adversary.step()
    victim, before = adversary.add(20, 10, priority=VICTIM), []
    for step in range(NUM_STEPS):
        if victim.has_started:
            return step, before
        adversary.step()
        running = [s.request for s in adversary.scheduler.state.slot_table.sequences if s is not None]
        passed = [r for r in running if r.arrival_s + r.scheduling.priority * AGEING_S > VICTIM * AGEING_S + 5]
        before += [] if victim.has_started else passed
    return NUM_STEPS, before


@pytest.mark.parametrize("limits", [{}, {"num_pages": 17}], ids=["ample", "few pages"])
def test_waiting_outweighs_priority(limits):
    for seed in range(6):
        wait, overtook = wait_among_priorities(ByPriority(AGEING_S), seed, **limits)
        assert wait < NUM_STEPS
        assert not overtook


def test_without_ageing_the_victim_starves():
    assert all(wait_among_priorities(StrictPriority(), seed)[0] == NUM_STEPS for seed in range(6))


def wait_among_tenants(seed):
    """The victim's tenant has been served before; then each request comes from a new tenant."""
    adversary = Adversary(FairShares(), seed)
    for _ in range(4):
        adversary.add(20, 20, tenant="victim")
    for i in range(12):
        adversary.step(tenant=f"first {i}")
    victim = adversary.add(20, 10, tenant="victim")
    for step in range(NUM_STEPS):
        if victim.has_started:
            return step
        adversary.step(tenant=f"another {step}")
    return NUM_STEPS


def test_an_endless_series_of_new_tenants_does_not_starve_the_victim():
    assert all(wait_among_tenants(seed) < NUM_STEPS for seed in range(6))


def test_it_would_if_all_tenants_entered_at_the_minimum():
    with patch.object(tenant_queues, "ENTRY", 0):
        assert any(wait_among_tenants(seed) == NUM_STEPS for seed in range(6))
