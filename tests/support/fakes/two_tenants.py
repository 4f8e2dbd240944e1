"""Two tenants of one engine with the fake runner, in simulated time: one floods it, the other has few requests."""

from typing import Any

import numpy as np

from jaxserve.core.options.scheduling_options import DEFAULT_SCHEDULING, SchedulingOptions
from jaxserve.core.sequence import Sequence
from jaxserve.engine.loop.engine import Engine
from jaxserve.scheduler.policy.scheduling_policy import SchedulingPolicy
from tests.support.fakes.fake_engine import SimulatedClock, make_engine, make_request

# Floods: (shortest, longest) prompts and outputs, and limits of the engine.
FLOODS: dict[str, dict[str, Any]] = {
    "short requests": {"prompts": (1, 8), "outputs": (4, 20)},
    "long prompts": {"prompts": (30, 58), "outputs": (1, 4)},
    "long outputs": {"prompts": (2, 6), "outputs": (50, 57)},
    "few pages": {"prompts": (4, 30), "outputs": (20, 30), "num_pages": 50},
    "prefixes": {"prompts": (4, 30), "outputs": (4, 20), "num_pages": 70, "prefix_eviction": "hits"},
}
QUIET_PROMPTS = (3, 30, 60, 10)  # tokens of prompts, in turn
NUM_WAITING = 20  # requests of the flood, at any time


class TwoTenants:
    """A step of the engine takes a second. waits_s: times to first token of the quiet tenant's requests."""

    def __init__(
        self, policy: SchedulingPolicy | None, flood: dict[str, Any] | None, seed: int = 0, quiet_weight: float = 1.0
    ):
        limits = {} if flood is None else {k: v for k, v in flood.items() if k not in ("prompts", "outputs")}
        self.clock, self.flood, self.random = SimulatedClock(), flood, np.random.default_rng(seed)
        self.engine: Engine = make_engine(policy=policy, clock=self.clock, **limits)
        self.has_tenants = "tenant" in self.engine.scheduler.state.policy.fields
        self.num_added, self.waits_s = 0, []
        self.floods: list[Sequence] = []

    def add(self, tenant: str, prompt_len: int, num_tokens: int) -> Sequence:
        scheduling = SchedulingOptions(tenant=tenant) if self.has_tenants else DEFAULT_SCHEDULING
        self.num_added += 1
        options: dict[str, Any] = {"seed": self.num_added, "arrival_s": self.clock.now_s, "ignore_eos": True}
        request = make_request(str(self.num_added), prompt_len, num_tokens, scheduling=scheduling, **options)
        return self.engine.add(request)[0]

    def step(self) -> None:
        while self.flood is not None and len(self.engine.scheduler.state.waiting) < NUM_WAITING:
            sizes = [int(self.random.integers(*self.flood[name], endpoint=True)) for name in ("prompts", "outputs")]
            self.floods.append(self.add("flood", *sizes))
        self.engine.step()
        self.clock.now_s += 1

    def run(self, num_requests: int) -> list[float]:
        """Times to first token of the quiet tenant, whose requests come some steps after the one before has ended."""
        for i in range(num_requests):
            for _ in range(self.random.integers(3, 25)):
                self.step()
            sequence = self.add("quiet", QUIET_PROMPTS[i % len(QUIET_PROMPTS)], 3)
            while not sequence.is_finished:
                self.step()
                if len(sequence.token_ids) and len(self.waits_s) == i:
                    self.waits_s.append(self.clock.now_s - sequence.request.arrival_s)
        return self.waits_s
