"""Host: `SchedulingOptions`: priority, tenant and time limits of one request."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from jaxserve.core.errors import RequestError

MAX_TENANT_CHARS = 128


class SchedulingKwargs(TypedDict, total=False):
    """The fields of `SchedulingOptions` in calls: each one value for all prompts, or a list with one per prompt."""

    priority: int | Sequence[int]
    tenant: str | Sequence[str | None] | None
    queue_timeout_s: float | Sequence[float | None] | None
    deadline_s: float | Sequence[float | None] | None


@dataclass(frozen=True, slots=True)
class SchedulingOptions:
    """priority: a 64-bit integer; the lowest is served first. tenant: account to which tokens are charged; None: the
    account of all requests without a tenant. queue_timeout_s: seconds from the call within which a sequence must get
    its first slot. deadline_s: seconds from the call within which it must end. A late sequence ends with finish_reason
    "timeout" and keeps its tokens. Raises `RequestError` naming the field.
    """

    priority: int = 0
    tenant: str | None = None
    queue_timeout_s: float | None = None
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        priority: Any = self.priority
        tenant: Any = self.tenant
        if not isinstance(priority, int) or isinstance(priority, bool) or not -(2**63) <= priority < 2**63:
            raise RequestError(f"priority={priority!r} must be an integer of 64 bits", "priority")
        if tenant is not None and (not isinstance(tenant, str) or not 0 < len(tenant) <= MAX_TENANT_CHARS):
            raise RequestError(f"tenant={tenant!r} must be text of 1 to {MAX_TENANT_CHARS} characters", "tenant")
        for name in ("queue_timeout_s", "deadline_s"):
            seconds = getattr(self, name)
            is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            if seconds is not None and not (is_number and math.isfinite(seconds) and seconds > 0):
                raise RequestError(f"{name}={seconds!r} must be seconds from now: finite, and more than 0", name)


DEFAULT_SCHEDULING = SchedulingOptions()
