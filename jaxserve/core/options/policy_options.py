"""Host: what the options of an engine say of its queue: the policies, their own options, and how these are checked."""

import math
from collections.abc import Mapping
from typing import Any

from jaxserve.core.errors import ConfigError

# Policy → the options that mean something to it.
POLICIES: dict[str, tuple[str, ...]] = {
    "fcfs": (),
    "priority": ("priority_ageing_s",),
    "fair": ("priority_ageing_s", "tenant_weights"),
}
PRIORITY_AGEING_S = 60.0  # default seconds of waiting that are worth one step of priority


def check_policy_options(policy: str, options: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for an option (None: not given) that the policy has no use for, or of a bad value."""
    for name, value in options.items():
        if value is None:
            continue
        if name not in POLICIES[policy]:
            known = " or ".join(repr(other) for other, names in POLICIES.items() if name in names)
            raise ConfigError(f"{name} means nothing to scheduling_policy={policy!r}, only to {known}", param=name)
        CHECKS[name](value)


def _check_ageing(value: Any) -> None:
    if not _is_positive(value):
        raise ConfigError(f"priority_ageing_s={value!r} must be finite seconds, more than 0", param="priority_ageing_s")


def _check_weights(value: Any) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
        raise ConfigError(f"tenant_weights={value!r} must map names of tenants to numbers", param="tenant_weights")
    for name, weight in value.items():
        if not _is_positive(weight):
            raise ConfigError(
                f"tenant_weights: {name!r} has {weight!r}; a weight must be finite and more than 0",
                param="tenant_weights",
            )


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


CHECKS = {"priority_ageing_s": _check_ageing, "tenant_weights": _check_weights}
