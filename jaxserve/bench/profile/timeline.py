"""Host: divides time among spans: device time among operations, and the own time of nested spans."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """A named interval from `start_ns` to `end_ns`."""

    start_ns: float
    end_ns: float
    name: str


def share_time(spans: Iterable[Span], containers: Collection[str] = ()) -> tuple[dict[str, float], float]:
    """(nanoseconds by name, idle nanoseconds): together the time from the first start to the last end.

    Spans that run at once share the time. A container gets only the time in which no other span runs; of several
    containers, the latest to start.
    """
    spans = [span for span in spans if span.end_ns > span.start_ns]
    edges = sorted(
        [(span.end_ns, False, i) for i, span in enumerate(spans)]
        + [(span.start_ns, True, i) for i, span in enumerate(spans)]
    )
    shares: dict[str, float] = defaultdict(float)
    idle_ns, now = 0.0, edges[0][0] if edges else 0.0
    leaves: dict[int, None] = {}
    open_containers: dict[int, None] = {}
    for edge_ns, is_start, i in edges:
        passed, now = edge_ns - now, edge_ns
        if passed:
            owners = list(leaves) or list(open_containers)[-1:]
            for owner in owners:
                shares[spans[owner].name] += passed / len(owners)
            idle_ns += 0.0 if owners else passed
        active = open_containers if spans[i].name in containers else leaves
        if is_start:
            active[i] = None
        else:
            active.pop(i, None)
    return dict(shares), idle_ns


def own_times(spans: Iterable[Span]) -> dict[str, float]:
    """Nanoseconds by name, of the spans of one thread, without the spans inside them."""
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
