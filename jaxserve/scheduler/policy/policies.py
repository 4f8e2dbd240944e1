"""Host: the table of orders, by the names that users give them (`core.policy_options.POLICIES`)."""

from typing import Any

from jaxserve.scheduler.policy.fair import FairShares
from jaxserve.scheduler.policy.scheduling_policy import ByPriority, FirstComeFirstServed, SchedulingPolicy

POLICY_CLASSES: dict[str, type[SchedulingPolicy]] = {
    "fcfs": FirstComeFirstServed,
    "priority": ByPriority,
    "fair": FairShares,
}


def make_policy(policy: str, **options: Any) -> SchedulingPolicy:
    """By its name, with those of its options that are not None."""
    return POLICY_CLASSES[policy](**{name: value for name, value in options.items() if value is not None})
