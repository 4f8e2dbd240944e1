"""Host: the scheduling policies, the engine options of each, and the checks of these."""

import math
from collections.abc import Mapping
from typing import Any, cast

from jaxserve.core.errors import ConfigError

# Policy → its options.
POLICIES: dict[str, tuple[str, ...]] = {
    "fcfs": (),
    "priority": ("priority_ageing_s",),
    "fair": ("priority_ageing_s", "tenant_weights"),
}
PRIORITY_AGEING_S = 60.0  # default: seconds of waiting that equal one step of priority


def check_policy_options(policy: str, options: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for an option (None: not given) that the policy does not have, or with a bad value."""
    for name, value in options.items():
        if value is None:
            continue
        if name not in POLICIES[policy]:
            known = " or ".join(repr(other) for other, names in POLICIES.items() if name in names)
            raise ConfigError(
                f"{name} has no effect with scheduling_policy={policy!r}; only {known} uses it", param=name
            )
        CHECKS[name](value)


def _check_ageing(value: Any) -> None:
    if not _is_positive(value):
        raise ConfigError(f"priority_ageing_s={value!r} must be finite seconds, more than 0", param="priority_ageing_s")


def _check_weights(value: Any) -> None:
    weights = cast(Mapping[Any, Any], value) if isinstance(value, Mapping) else None
    if weights is None or not all(isinstance(name, str) and name for name in weights):
        raise ConfigError(f"tenant_weights={value!r} must map names of tenants to numbers", param="tenant_weights")
    for name, weight in weights.items():
        if not _is_positive(weight):
            raise ConfigError(
                f"tenant_weights: {name!r} has {weight!r}; a weight must be finite and more than 0",
                param="tenant_weights",
            )


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


CHECKS = {"priority_ageing_s": _check_ageing, "tenant_weights": _check_weights}
