"""Host: `FairShares`: the policy that divides slots and tokens among tenants by their weights."""

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from functools import partial

import numpy as np

from jaxserve.core.options.policy_options import PRIORITY_AGEING_S
from jaxserve.core.sequence import Sequence
from jaxserve.scheduler.policy.scheduling_policy import SchedulingPolicy, aged_priority
from jaxserve.scheduler.policy.tenant_queues import TenantQueues
from jaxserve.scheduler.policy.waiting_queue import Key

PROMPT_COST, GENERATED_COST = 1, 2  # of a token, as in the paper: each generated token takes a pass of its own


class FairShares(SchedulingPolicy):
    """Tenants by the service they received; within a tenant, sequences by priority.

    Slots: a free slot goes to the tenant that was served least. If no slot is free, or no pages are, that tenant
    preempts the last sequence of another tenant that afterwards still has at least as many running for its weight.
    Tokens: the budget that decoding sequences leave goes to the prompts of the tenant that was served least.
    Pages: a sequence that lacks pages gets them from the tenant with most running sequences for its weight. The first
    sequence of each tenant precedes the second of any, so the oldest of the first ones always advances, then the next.

    priority_ageing_s: as in `aged_priority`. tenant_weights: 1 for tenants that are not named.
    """

    fields = ("priority", "tenant")

    def __init__(self, priority_ageing_s: float = PRIORITY_AGEING_S, tenant_weights: Mapping[str, float] | None = None):
        self._key_within = partial(aged_priority, ageing_s=priority_ageing_s)
        self._tenants = TenantQueues(self._key_within, tenant_weights or {})
        self.waiting = self._tenants

    def key(self, sequence: Sequence) -> Key:
        return self._tenants.rank(sequence), *self._key_within(sequence)

    def chunk_key(self, sequence: Sequence) -> Key:
        return *self._tenants.of(sequence).turn, *self._key_within(sequence)

    def goes_ahead(self, waiting: Sequence, running: Sequence) -> bool:
        return self._tenants.of(waiting).turn < self._tenants.of(running).turn

    def victim_for(self, waiting: Sequence) -> Sequence | None:
        return self._tenants.victim_for(self._tenants.of(waiting))

    def on_add(self, sequence: Sequence) -> None:
        self._tenants.on_add(sequence)

    def on_start(self, sequence: Sequence) -> None:
        self._tenants.on_start(sequence)

    def on_vacate(self, sequence: Sequence) -> None:
        self._tenants.of(sequence).running.remove(sequence)

    def on_end(self, sequence: Sequence) -> None:
        self._tenants.of(sequence).num_living -= 1

    def charge_prompt(self, sequence: Sequence, num_tokens: int) -> None:
        self._tenants.of(sequence).charge(PROMPT_COST * num_tokens)

    def charge_generated(self, sequences: SequenceOf[Sequence], counts: np.ndarray) -> None:
        for sequence, count in zip(sequences, counts.tolist(), strict=True):
            self._tenants.of(sequence).charge(GENERATED_COST * count)
