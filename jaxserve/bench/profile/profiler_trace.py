"""Wiring: reads a trace of `jax.profiler`: the operations of each run of a program, and annotated host time."""

import warnings
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxserve.bench.profile.timeline import Span

TPU_LINE = "XLA Ops"  # on this line the event's name is the operation


@dataclass(frozen=True, slots=True)
class RunKey:
    """One run of a program on one device. program: the profiler's id of the loaded program."""

    module: str
    program: int
    run: int
    device: str


@dataclass(slots=True)
class Trace:
    """runs: operations of each run, under the names of their instructions. host: annotations in order of time."""

    runs: dict[RunKey, list[Span]] = field(default_factory=lambda: defaultdict(list))
    host: list[Span] = field(default_factory=list[Span])


def read_profiler_trace(folder: Path, annotations: Collection[str]) -> Trace:
    """The newest trace in a folder that `jax.profiler.trace` wrote to."""
    import jax

    files = sorted(folder.glob("plugins/profile/*/*.xplane.pb"), key=lambda path: path.stat().st_mtime)
    if not files:
        raise FileNotFoundError(f"the profiler left no trace in {folder}")
    profiler: Any = jax.profiler
    return from_profile(profiler.ProfileData.from_file(str(files[-1])), annotations)


def from_profile(profile: Any, annotations: Collection[str]) -> Trace:
    """The trace in a `jax.profiler.ProfileData`.

    On CPU an operation may end in another thread. Its end is then an event that points to its start (`_c` to `_p`);
    without it the work of other threads for an operation would not count.
    """
    trace = Trace()
    ends: dict[Any, float] = {}
    spans: list[tuple[RunKey, Span, int | None]] = []
    for plane, line, event in _events(profile):
        end_ns = event.start_ns + event.duration_ns
        if event.name in annotations:
            trace.host.append(Span(event.start_ns, end_ns, event.name))
            continue
        stats = dict(event.stats)
        op = stats.get("hlo_op") or (instruction_of(event.name) if line == TPU_LINE else None)
        if op is not None:
            device = f"{plane}:{stats.get('device_ordinal', '')}"
            program, run = int(stats.get("program_id", 0)), int(stats.get("run_id", 0))
            key = RunKey(str(stats.get("hlo_module", "")), program, run, device)
            spans.append((key, Span(event.start_ns, end_ns, op), stats.get("_p")))
        elif "_c" in stats and event.name.startswith("end: "):
            ends[stats["_c"]] = end_ns
    for key, span, place in spans:
        trace.runs[key].append(span._replace(end_ns=max(span.end_ns, ends.get(place, 0.0))))
    trace.host.sort()
    return trace


def _events(profile: Any) -> Iterator[tuple[str, str, Any]]:
    """(plane, line, event): a plane is a device or the host, a line is a thread or a stream."""
    with warnings.catch_warnings():  # Python warns that jaxlib's type of an event's statistics has no module
        warnings.simplefilter("ignore", DeprecationWarning)
        for plane in profile.planes:
            for line in plane.lines:
                for event in line.events:
                    yield plane.name, line.name, event


def instruction_of(name: str) -> str:
    """fusion.3 of "%fusion.3 = bf16[8,64] fusion(...)"."""
    return name.removeprefix("%").partition(" ")[0]
