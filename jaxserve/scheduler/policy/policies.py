"""Host: the scheduling policies by name (`core.options.policy_options.POLICIES`), and the two simple ones."""

from typing import Any

from jaxserve.core.options.policy_options import PRIORITY_AGEING_S
from jaxserve.core.sequence import Sequence
from jaxserve.scheduler.policy.fair import FairShares
from jaxserve.scheduler.policy.scheduling_policy import SchedulingPolicy, aged_priority
from jaxserve.scheduler.policy.waiting_queue import Key, WaitingQueue


class FirstComeFirstServed(SchedulingPolicy):
    """In the order of arrival."""

    def __init__(self) -> None:
        self.waiting = WaitingQueue(self.key)

    def key(self, sequence: Sequence) -> Key:
        return (sequence.sequence_id,)


class ByPriority(SchedulingPolicy):
    """By priority, the lower first, with ageing as in `aged_priority`."""

    fields = ("priority",)

    def __init__(self, priority_ageing_s: float = PRIORITY_AGEING_S):
        self._ageing_s = priority_ageing_s
        self.waiting = WaitingQueue(self.key)

    def key(self, sequence: Sequence) -> Key:
        return aged_priority(sequence, self._ageing_s)


POLICY_CLASSES: dict[str, type[SchedulingPolicy]] = {
    "fcfs": FirstComeFirstServed,
    "priority": ByPriority,
    "fair": FairShares,
}


def make_policy(policy: str, **options: Any) -> SchedulingPolicy:
    """The policy of this name, with those of its options that are not None."""
    return POLICY_CLASSES[policy](**{name: value for name, value in options.items() if value is not None})
