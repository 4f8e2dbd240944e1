"""Host: `FairShares`, the order that divides slots and tokens among tenants by their weights."""

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf

import numpy as np

from jaxserve.core.options.policy_options import PRIORITY_AGEING_S
from jaxserve.core.sequence import Sequence
from jaxserve.scheduler.policy.scheduling_policy import ByPriority, SchedulingPolicy
from jaxserve.scheduler.policy.tenant_counters import TenantQueues
from jaxserve.scheduler.policy.waiting_queue import Key

READ_COST, DRAWN_COST = 1, 2  # of a token, as in the paper: one that is drawn costs a pass of its own


class FairShares(SchedulingPolicy):
    """Tenants by what they were served; within a tenant, sequences by priority.

    Slots: one goes to the tenant that was served least. Where none is free, or no pages, that tenant takes over the
    last sequence of another, as long as the other has more running for its weight afterwards, too, or as many.
    Tokens: what decoding sequences leave of a step goes to the prompts of the tenant that was served least.
    Pages: who lacks some gets them from the tenant with most running sequences for its weight. The first sequence of
    each tenant goes before the second of any: so the oldest of the first ones always moves on, then the next.

    priority_ageing_s: as in `ByPriority`. tenant_weights: 1 for tenants that are not in it.
    """

    fields = ("priority", "tenant")

    def __init__(self, priority_ageing_s: float = PRIORITY_AGEING_S, tenant_weights: Mapping[str, float] | None = None):
        self._key_within = ByPriority(priority_ageing_s).key
        self.waiting: TenantQueues = TenantQueues(self._key_within, tenant_weights or {})

    def key(self, sequence: Sequence) -> Key:
        return self.waiting.rank(sequence), *self._key_within(sequence)

    def chunk_key(self, sequence: Sequence) -> Key:
        return *self.waiting.of(sequence).turn, *self._key_within(sequence)

    def goes_ahead(self, waiting: Sequence, running: Sequence) -> bool:
        return self.waiting.of(waiting).turn < self.waiting.of(running).turn

    def yields_to(self, waiting: Sequence) -> Sequence | None:
        return self.waiting.yields_to(self.waiting.of(waiting))

    def enter(self, sequence: Sequence) -> None:
        self.waiting.enter(sequence)

    def start(self, sequence: Sequence) -> None:
        self.waiting.start(sequence)

    def leave(self, sequence: Sequence) -> None:
        self.waiting.leave(sequence)

    def exit(self, sequence: Sequence) -> None:
        self.waiting.of(sequence).num_living -= 1

    def charge_read(self, sequence: Sequence, num_tokens: int) -> None:
        self.waiting.of(sequence).charge(READ_COST * num_tokens)

    def charge_drawn(self, sequences: SequenceOf[Sequence], counts: np.ndarray) -> None:
        for sequence, count in zip(sequences, counts.tolist(), strict=True):
            self.waiting.of(sequence).charge(DRAWN_COST * count)
