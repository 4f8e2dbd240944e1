"""Host: the table of orders, by the names that users give them (`core.queue_options.POLICIES`)."""

from typing import Any

from jaxserve.scheduler.policy.fair import FairShares
from jaxserve.scheduler.policy.service_order import ByPriority, FirstComeFirstServed, Order

ORDERS: dict[str, type[Order]] = {"fcfs": FirstComeFirstServed, "priority": ByPriority, "fair": FairShares}


def make_order(policy: str, **options: Any) -> Order:
    """By its name, with those of its options that are not None."""
    return ORDERS[policy](**{name: value for name, value in options.items() if value is not None})
