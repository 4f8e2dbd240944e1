"""Host: stretches of time: who had the device when, and what a stretch took without those inside it."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """What ran from `start_ns` to `end_ns`."""

    start_ns: float
    end_ns: float
    name: str


def share_time(spans: Iterable[Span], containers: Collection[str] = ()) -> tuple[dict[str, float], float]:
    """(nanoseconds by name, nanoseconds in which nothing ran): together all the time from first start to last end.

    Spans that run at once divide the time. Containers get what none of the others takes, the latest begun first.
    """
    spans = [span for span in spans if span.end_ns > span.start_ns]
    edges = sorted(
        [(span.end_ns, False, i) for i, span in enumerate(spans)]
        + [(span.start_ns, True, i) for i, span in enumerate(spans)]
    )
    shares: dict[str, float] = defaultdict(float)
    idle_ns, now = 0.0, edges[0][0] if edges else 0.0
    leaves: dict[int, None] = {}
    holders: dict[int, None] = {}
    for moment, is_start, i in edges:
        passed, now = moment - now, moment
        if passed:
            owners = list(leaves) or list(holders)[-1:]
            for owner in owners:
                shares[spans[owner].name] += passed / len(owners)
            idle_ns += 0.0 if owners else passed
        active = holders if spans[i].name in containers else leaves
        if is_start:
            active[i] = None
        else:
            active.pop(i, None)
    return dict(shares), idle_ns


def own_times(spans: Iterable[Span]) -> dict[str, float]:
    """Nanoseconds by name, of spans of one thread, without the spans inside them."""
    own: dict[str, float] = defaultdict(float)
    stack: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.start_ns, -s.end_ns)):
        while stack and stack[-1].end_ns <= span.start_ns:
            stack.pop()
        if stack:
            own[stack[-1].name] -= span.end_ns - span.start_ns
        own[span.name] += span.end_ns - span.start_ns
        stack.append(span)
    return dict(own)
